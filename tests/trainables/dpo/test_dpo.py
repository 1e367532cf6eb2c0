"""The loss of `dpo` against its published formula, and files of pairs."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from tests.trainables.examples import EXAMPLES
from trainables.base import Split
from trainables.causal_lm.model.model import new_model
from trainables.dpo.config import DPOConfig
from trainables.dpo.loss import preference_losses
from trainables.training.task import open_task

CONFIG = EXAMPLES["dpo"].config


def config_of(**changes: Any) -> DPOConfig:
    return DPOConfig.model_validate({**CONFIG, **changes})


def test_loss_of_a_model_is_that_of_the_paper(cache: Path) -> None:
    task = open_task(config_of(beta=0.3), cache)
    first: Any = new_model(task.config, task.dataset)
    model: Any = new_model(task.config, task.dataset)
    with torch.no_grad():
        for p in model.parameters():
            p += 0.05 * torch.randn(p.shape, generator=torch.Generator().manual_seed(len(p)))
    rows = np.arange(3)
    loss = task.objective(model)(*task.batch(rows, torch.device("cpu")))

    def log_prob(network: Any, row: int) -> torch.Tensor:
        size = task.dataset.lengths(Split.TRAIN)[row]
        ids = torch.from_numpy(task.dataset.sequences(Split.TRAIN)[row, :size].astype(np.int64))
        each = network(input_ids=ids[None, :-1]).logits[0].log_softmax(-1)
        counted = torch.from_numpy(task.dataset.counted(Split.TRAIN)[row, : size - 1].copy())
        return (each.gather(-1, ids[1:, None])[:, 0] * counted).sum()

    losses = []
    for pair in rows:
        w, l = (log_prob(model, i) - log_prob(first, i) for i in (2 * pair, 2 * pair + 1))  # noqa: E741
        losses.append(-torch.log(torch.sigmoid(0.3 * (w - l))))
    torch.testing.assert_close(loss, torch.stack(losses).mean(), rtol=1e-4, atol=1e-5)


def test_smoothing_and_ipo() -> None:
    changes, lengths = torch.tensor([1.0, -1.0]), torch.tensor([2, 4])
    margin = 0.5 * 2.0
    down, up = (-math.log(1 / (1 + math.exp(-m))) for m in (margin, -margin))
    smooth = preference_losses(changes, lengths, config_of(beta=0.5, label_smoothing=0.1))
    assert smooth.tolist() == pytest.approx([0.9 * down + 0.1 * up])
    ipo = preference_losses(changes, lengths, config_of(beta=0.5, loss="ipo"))
    assert ipo.tolist() == pytest.approx([(1 / 2 + 1 / 4 - 1) ** 2])


def test_reference_is_computed_once_for_all_trials(cache: Path) -> None:
    open_task(config_of(), cache)
    folders = set(cache.glob("reference-*"))
    task = open_task(config_of(beta=0.4, learning_rate=1e-2), cache)
    assert set(cache.glob("reference-*")) == folders
    assert {len(v) // 2 for v in task.reference.values()} >= {task.size}


def write(file: Path, rows: list[dict[str, str]]) -> Path:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def test_pairs_of_a_file_stay_together(tmp_path: Path, cache: Path) -> None:
    rows = [{"prompt": f"q{i}", "good": f"yes {i}", "bad": f"no {i}"} for i in range(80)]
    file = write(tmp_path / "pairs.jsonl", rows)
    columns = {"question": "prompt", "chosen": "good", "rejected": "bad"}
    task = open_task(config_of(data={"source": "files", "paths": str(file), **columns}), cache)
    found = task.dataset.questions(Split.SELECTION)
    for chosen, rejected in zip(found[::2], found[1::2], strict=True):
        number = chosen["question"][1:]
        assert (chosen["answer"], rejected["answer"]) == (f"yes {number}", f"no {number}")
        assert rejected["question"] == chosen["question"]


def test_bad_pairs_are_named_by_their_line(tmp_path: Path) -> None:
    good = {"question": "q", "chosen": "a", "rejected": "b"}
    file = write(tmp_path / "pairs.jsonl", [good, {**good, "rejected": "a"}])
    data = {"source": "files", "paths": str(file)}
    [(path, problem)] = config_of(data=data).missing_files()
    assert path == ("data",)
    assert "pairs.jsonl:2: the preferred and the rejected answer are the same" in problem


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sft": None}, "set model_name_or_path to a fine-tuned one, or sft"),
        ({"loss": "ipo", "label_smoothing": 0.1}, "only with loss: sigmoid"),
        ({"data": {"source": "docstrings"}}, "arithmetic"),
    ],
)
def test_mistakes(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        config_of(**changes)
