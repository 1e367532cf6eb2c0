"""Metrics of a classifier as functions of the weights of its examples.

Their derivatives by the weights give the share of each example (the infinitesimal jackknife,
Jaeckel 1972), of which the mean is the metric. With equal weights all are those of scikit-learn and
SciPy.
"""

from __future__ import annotations

import torch
from torch.nn import functional as F

Metrics = dict[str, torch.Tensor]


def metrics_of(
    task: str, scores: torch.Tensor, targets: torch.Tensor, weights: torch.Tensor
) -> Metrics:
    """The metrics of a task, scalars.

    Args:
        task: of the configuration.
        scores: float64 [examples, labels]; of a regression [examples, 1], of a reward model
            [examples, 2], of the preferred and the rejected answer.
        targets: numbers of labels, int64 [examples], or numbers; of a reward model not read.
        weights: float64 [examples].
    """
    if task == "labels":
        losses = F.cross_entropy(scores, targets, reduction="none")
        found = {"accuracy": _mean((scores.argmax(dim=1) == targets).double(), weights)}
        found |= {"f1": _f1(scores, targets, weights), "auc": _auc(scores, targets, weights)}
    elif task == "regression":
        predicted = scores[:, 0]
        losses = (predicted - targets) ** 2
        ranks = _ranks(predicted, weights), _ranks(targets, weights)
        found = {
            "pearson": _correlation(predicted, targets, weights),
            "spearman": _correlation(*ranks, weights),
        }
    else:
        chosen, rejected = scores.T
        losses = -F.logsigmoid(chosen - rejected)
        each = {"accuracy": (chosen > rejected).double(), "reward_margin": chosen - rejected}
        each |= {"chosen_reward": chosen, "rejected_reward": rejected}
        found = {name: _mean(values, weights) for name, values in each.items()}
    return {**found, "eval_loss": _mean(losses, weights)}


def metric_shares(task: str, scores: torch.Tensor, targets: torch.Tensor) -> dict[str, list[float]]:
    """The share of each example in the metrics, whose means are the metrics."""
    weights = torch.ones(len(scores), dtype=torch.float64, requires_grad=True)
    found = {}
    for name, value in metrics_of(task, scores, targets, weights).items():
        (slope,) = torch.autograd.grad(value, weights, retain_graph=True)
        found[name] = (value.detach() + len(scores) * slope).tolist()
    return found


def _mean(values: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    return (values * weights).sum() / weights.sum()


def _f1(scores: torch.Tensor, targets: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Mean over the labels that are expected or predicted."""
    count = scores.shape[1]
    is_label, is_predicted = (F.one_hot(n, count).double() for n in (targets, scores.argmax(dim=1)))
    right = weights @ (is_label * is_predicted)
    every = weights @ (is_label + is_predicted)
    return (2 * right[every > 0] / every[every > 0]).mean()


def _auc(scores: torch.Tensor, targets: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Of each label against the rest, the mean over those of some, not all examples, or NaN."""
    probabilities, found = scores.softmax(dim=1), []
    for label in range(scores.shape[1] == 2, scores.shape[1]):  # of two, both have the same
        is_label = (targets == label).double()
        if 0 < is_label.sum() < len(targets):
            own, rest = (weights * is_label).sum(), (weights * (1 - is_label)).sum()
            below = (weights * is_label * _ranks(probabilities[:, label], weights)).sum()
            found.append((below - own**2 / 2) / (own * rest))
    return torch.stack(found or [weights.sum() * torch.nan]).mean()


def _ranks(values: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Weight of what is below each value, and half of what equals it."""
    _, places = torch.unique(values, return_inverse=True)
    equal = torch.zeros(int(places.max()) + 1, dtype=weights.dtype).index_add(0, places, weights)
    return (equal.cumsum(dim=0) - equal / 2)[places]


def _correlation(first: torch.Tensor, other: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Pearson's; NaN if one of them is constant."""
    first, other = (values - _mean(values, weights) for values in (first, other))
    products = (_mean(a * b, weights) for a, b in ((first, other), (first, first), (other, other)))
    both, one, two = products
    return both / (one * two).sqrt()
