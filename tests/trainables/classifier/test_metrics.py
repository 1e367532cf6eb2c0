"""Metrics against scikit-learn and SciPy, and the shares of examples in them."""

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn import metrics as sk

from trainables.classifier.metrics import metric_shares, metrics_of

GENERATOR = torch.Generator().manual_seed(0)


def values(task: str, scores: torch.Tensor, targets: torch.Tensor) -> dict[str, float]:
    found = metrics_of(task, scores, targets, torch.ones(len(scores), dtype=torch.float64))
    return {name: float(value) for name, value in found.items()}


@pytest.mark.parametrize("labels", [2, 4])
def test_labels(labels: int) -> None:
    targets = torch.randint(labels, (60,), generator=GENERATOR)
    scores = torch.randn(60, labels, generator=GENERATOR, dtype=torch.float64).round(decimals=1)
    scores[torch.arange(60), targets] += 0.5
    expected, chances = targets.numpy(), scores.softmax(1).numpy()
    predicted = scores.argmax(1).numpy()
    auc = sk.roc_auc_score(expected, chances[:, 1] if labels == 2 else chances, multi_class="ovr")
    assert values("labels", scores, targets) == pytest.approx(
        {
            "accuracy": sk.accuracy_score(expected, predicted),
            "f1": sk.f1_score(expected, predicted, average="macro"),
            "auc": auc,
            "eval_loss": sk.log_loss(expected, chances),
        }
    )


def test_labels_that_a_split_lacks_do_not_count() -> None:
    scores = torch.tensor([[2.0, 1, 0], [0, 1, 0.5], [3, 0, 1]], dtype=torch.float64)
    found = values("labels", scores, torch.tensor([0, 1, 1]))
    assert found["f1"] == pytest.approx(sk.f1_score([0, 1, 1], [0, 1, 0], average="macro"))
    chances, expected = scores.softmax(1).numpy(), np.array([0, 1, 1])
    of_each = [sk.roc_auc_score(expected == label, chances[:, label]) for label in (0, 1)]
    assert found["auc"] == pytest.approx(np.mean(of_each))
    assert np.isnan(values("labels", scores, torch.tensor([1, 1, 1]))["auc"])


def test_regression() -> None:
    targets = torch.randn(50, generator=GENERATOR).round(decimals=1).double()
    scores = targets[:, None] + torch.randn(50, 1, generator=GENERATOR).round(decimals=1)
    a, b = scores[:, 0].numpy(), targets.numpy()
    assert values("regression", scores, targets) == pytest.approx(
        {
            "pearson": stats.pearsonr(a, b)[0],
            "spearman": stats.spearmanr(a, b)[0],
            "eval_loss": float(np.mean((a - b) ** 2)),
        }
    )


def test_share_of_an_example_is_how_much_a_metric_changes_with_its_weight() -> None:
    targets = torch.randint(3, (40,), generator=GENERATOR)
    scores = torch.randn(40, 3, generator=GENERATOR, dtype=torch.float64)
    shares, weights = metric_shares("labels", scores, targets), torch.ones(40).double()
    weights[7] += 1e-6
    moved, before = (
        metrics_of("labels", scores, targets, weights),
        values("labels", scores, targets),
    )
    for name, value in moved.items():
        slope = (float(value) - before[name]) / 1e-6
        assert shares[name][7] == pytest.approx(before[name] + 40 * slope, abs=1e-4)
