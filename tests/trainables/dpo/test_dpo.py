"""The loss of `dpo` against its published formula, and files of pairs."""

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from tests.trainables.dpo import ranks, trl_losses
from tests.trainables.examples import EXAMPLES
from tests.trainables.local import ROOT, run_trial
from trainables.base import Split
from trainables.causal_lm.model.model import new_model
from trainables.causal_lm.trained_model import trained_once
from trainables.dpo.config import DPOConfig
from trainables.dpo.loss import preference_losses
from trainables.training.task import open_task

CONFIG = EXAMPLES["dpo"].config
EXPECTED = json.loads(trl_losses.FILE.read_text())["losses"]
LABELS = {"source": "files", "paths": "x.jsonl", "label": "good"}


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


@pytest.mark.parametrize("name", trl_losses.LOSSES)
def test_losses_and_gradients_are_those_of_trl(tmp_path: Path, cache: Path, name: str) -> None:
    """Of a model that learns for some steps: `trl_losses.py` says how trl computed them."""
    given = {**trl_losses.SETTINGS, **trl_losses.LOSSES[name]}
    curve = run_trial(tmp_path / "t", "dpo", given, cache=cache, seed=trl_losses.SEED).curve
    for found, expected in zip(curve.values(), EXPECTED[name], strict=True):
        assert {k: found[k] for k in expected} == pytest.approx(expected, rel=2e-4, abs=1e-6)


def test_label_smoothing_is_that_of_the_formula() -> None:
    config, lengths = config_of(beta=0.5, label_smoothing=0.1), torch.tensor([2, 4])
    found = preference_losses(config, torch.tensor([1.0, -1.0]), lengths)
    down, up = (math.log(1 + math.exp(-margin)) for margin in (1.0, -1.0))
    assert found.tolist() == pytest.approx([0.9 * down + 0.1 * up])


@pytest.mark.parametrize("loss", ["orpo", "kto"])
def test_parts_of_a_batch_have_the_loss_of_the_whole(
    tmp_path: Path, cache: Path, loss: str
) -> None:
    config = {**CONFIG, "loss": loss, "max_steps": 4}
    whole = run_trial(tmp_path / "whole", "dpo", config, cache=cache)
    parts = run_trial(tmp_path / "parts", "dpo", {**config, "micro_batch_size": 1}, cache=cache)
    for step, metrics in parts.curve.items():
        assert metrics == pytest.approx(whole.curve[step], rel=1e-4, abs=1e-5), step


@pytest.mark.layouts
def test_two_ranks_learn_what_one_does(tmp_path: Path) -> None:
    """What the losses of a batch have in common is of both ranks, as are the metrics."""
    command = [sys.executable, "-m", "tests.trainables.dpo.ranks"]
    processes = [
        subprocess.Popen([*command, str(rank), str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE)
        for rank in range(2)
    ]
    printed = [process.communicate(timeout=200)[0] for process in processes]
    assert not any(process.returncode for process in processes)
    for loss, curve in ranks.curves(tmp_path / "alone").items():
        for step, metrics in json.loads(printed[0])[loss].items():
            assert metrics == pytest.approx(curve[step], rel=1e-4, abs=1e-5), (loss, step)


@pytest.mark.parametrize("loss", ["orpo", "simpo"])
def test_losses_without_a_reference_compute_none(tmp_path: Path, loss: str) -> None:
    assert open_task(config_of(loss=loss), tmp_path / "cache").reference == {}
    assert not list((tmp_path / "cache").glob("reference-*"))


def test_answers_with_labels(tmp_path: Path, cache: Path) -> None:
    rows = [
        {"prompt": f"q{i}", "completion": "yes" if i % 3 else "no", "label": bool(i % 3)}
        for i in range(120)
    ]
    file = write(tmp_path / "rows.jsonl", rows)
    columns = {"question": "prompt", "answer": "completion", "label": "label"}
    base = trained_once(config_of().start, cache, torch.device("cpu"), lambda: None)
    config: dict[str, Any] = {
        **CONFIG,
        **{"sft": None, "model_name_or_path": str(base), "loss": "kto", "learning_rate": 1e-2},
        "data": {"source": "files", "paths": str(file), **columns},
    }
    task = open_task(DPOConfig.model_validate(config), cache)
    for split in (Split.SELECTION, Split.TEST):
        answers = [question["answer"] == "yes" for question in task.dataset.questions(split)]
        assert task.dataset.labels(split).tolist() == answers
    reports = run_trial(tmp_path / "t", "dpo", config, cache=cache).reports
    first, last = reports[0].metrics, reports[-1].metrics
    assert last["chosen_reward"] > max(last["rejected_reward"], first["chosen_reward"])
    assert last["accuracy"] > 0.9
    assert not {"reward_margin", "ranking_accuracy"} & last.keys()
    write(file, [*rows, {"prompt": "q", "completion": "a", "label": "maybe"}])
    [(_, problem)] = DPOConfig.model_validate(config).missing_files()
    assert "rows.jsonl:121: 'label' must be true or false, got 'maybe'" in problem


def test_reference_is_computed_once_for_all_trials(cache: Path) -> None:
    open_task(config_of(), cache)
    folders = set(cache.glob("reference-*"))
    task = open_task(config_of(beta=0.4, learning_rate=1e-2), cache)
    assert set(cache.glob("reference-*")) == folders
    assert {len(v) // 2 for v in task.reference.values()} >= {task.size}


def write(file: Path, rows: list[dict[str, Any]]) -> Path:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


@pytest.mark.parametrize("role", ["user", "system"])
def test_pairs_of_a_file_stay_together(tmp_path: Path, cache: Path, role: str) -> None:
    asked = [[{"role": role, "content": f"q{i}"}] for i in range(80)]
    rows = [{"prompt": p, "good": f"yes {i}", "bad": f"no {i}"} for i, p in enumerate(asked)]
    file = write(tmp_path / "pairs.jsonl", rows)
    columns = {"question": "prompt", "chosen": "good", "rejected": "bad"}
    task = open_task(config_of(data={"source": "files", "paths": str(file), **columns}), cache)
    found = task.dataset.questions(Split.SELECTION)
    for chosen, rejected in zip(found[::2], found[1::2], strict=True):
        number = chosen["messages"][0]["content"][1:]
        assert (chosen["answer"], rejected["answer"]) == (f"yes {number}", f"no {number}")
        assert rejected["messages"] == chosen["messages"]


def talk(question: str, answer: str) -> list[dict[str, str]]:
    said = {"user": question, "assistant": answer}
    return [{"role": role, "content": content} for role, content in said.items()]


@pytest.mark.parametrize(
    ("rejected", "message"),
    [
        (talk("q", "a"), "the preferred and the rejected answer are the same"),
        (talk("p", "b"), "the preferred and the rejected answer have other questions"),
    ],
)
def test_bad_pairs_are_named_by_their_line(
    tmp_path: Path, rejected: list[dict[str, str]], message: str
) -> None:
    good = {"chosen": talk("q", "a"), "rejected": talk("q", "b")}
    file = write(tmp_path / "pairs.jsonl", [good, {**good, "rejected": rejected}])
    data = {"source": "files", "paths": str(file)}
    [(path, problem)] = config_of(data=data).missing_files()
    assert path == ("data",)
    assert f"pairs.jsonl:2: {message}" in problem


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sft": None}, "set model_name_or_path to a fine-tuned one, or sft"),
        ({"loss": "ipo", "label_smoothing": 0.1}, "only with loss: sigmoid or simpo"),
        ({"data": {"source": "docstrings"}}, "arithmetic"),
        ({"gamma": 0.3}, "gamma has an effect only with loss: simpo"),
        ({"data": {"answer": "reply"}}, "data.answer"),
        (
            {"loss": "kto", "data": {"source": "files", "paths": "a", "label": "l", "chosen": "c"}},
            "data.chosen",
        ),
        ({"loss": "orpo", "undesirable_weight": 2.0}, "only with loss: kto"),
        ({"loss": "kto", "batch_size": 1}, "2 or more"),
        ({"data": LABELS}, "only loss: kto"),
        ({"loss": "kto", "data": LABELS}, "set model_name_or_path"),
    ],
)
def test_mistakes(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        config_of(**changes)
