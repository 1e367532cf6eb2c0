"""A student's loss, and a teacher that runs once for all trials."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.modules.module import register_module_forward_hook
from transformers import LlamaModel, MixtralModel

from search_spaces.errors import UserError
from tests.trainables.causal_lm.pretrained import write_base
from tests.trainables.examples import EXAMPLES
from tests.trainables.local import newest_checkpoint, run_trial
from trainables.base import Split
from trainables.distill.config import Distill, DistillConfig
from trainables.distill.task import DistillTask, distillation_loss
from trainables.training.start_model import tokens_problem

TINY = EXAMPLES["distill"].config
WIDTH = TINY["hidden_size"]


@contextmanager
def passes_by_width() -> Iterator[Counter[int]]:
    """Forward passes of language models while it is open, by their width."""
    found: Counter[int] = Counter()

    def count(module: nn.Module, args: Any, output: Any) -> None:
        if isinstance(module, (LlamaModel, MixtralModel)):
            found[module.config.hidden_size] += 1

    hook = register_module_forward_hook(count)
    yield found
    hook.remove()


def merged(scores: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """Probabilities of some tokens, and of all others together."""
    probabilities = scores.softmax(dim=1)
    kept = probabilities.gather(1, ids)
    return torch.cat([kept, 1 - kept.sum(dim=1, keepdim=True)], dim=1)


@pytest.mark.parametrize(("top_k", "temperature"), [(9, 1.0), (9, 2.5), (4, 1.0)])
def test_loss_is_that_of_torch(top_k: int, temperature: float) -> None:
    """With all tokens at any temperature, and with the others as one class at temperature 1."""
    generator = torch.Generator().manual_seed(0)
    teacher, student = (torch.randn(6, 9, generator=generator) for _ in range(2))
    targets, top = torch.arange(6), teacher.log_softmax(dim=1).topk(top_k, dim=1)
    both = [scores / temperature for scores in (student, teacher)]
    if top_k < 9:
        found, expected = (merged(scores, top.indices) for scores in both)
    else:
        found, expected = (scores.softmax(dim=1) for scores in both)
    divergence = F.kl_div(found.log(), expected, reduction="batchmean")
    total = 0.3 * temperature**2 * divergence + 0.7 * F.cross_entropy(student, targets)
    loss = distillation_loss(student, targets, top.indices, top.values, 0.3, temperature)
    torch.testing.assert_close(loss, total)


def test_the_second_trial_never_runs_the_teacher(tmp_path: Path, cache: Path) -> None:
    width = TINY["teacher"]["hidden_size"]
    with passes_by_width() as first:
        run_trial(tmp_path / "first", "distill", TINY, cache=cache)
    assert first[width] > TINY["teacher"]["max_steps"]  # it was trained, and then asked
    with passes_by_width() as second:
        other = {**TINY, "alpha": 0.9, "temperature": 2.0, "learning_rate": 3e-3, "num_layers": 2}
        run_trial(tmp_path / "second", "distill", other, cache=cache)
    assert second[width] == 0
    assert second[WIDTH] >= TINY["max_steps"]


def test_a_student_learns_from_its_teacher_alone(tmp_path: Path, cache: Path) -> None:
    """With `alpha: 1` the text is no part of the loss; the teacher's outputs are all it sees."""
    config = {**TINY, "alpha": 1, "hidden_size": 32, "batch_size": 16, "max_steps": 200}
    config |= {"eval_every": 100, "teacher": {**TINY["teacher"], "max_steps": 200}}
    curve = run_trial(tmp_path / "t", "distill", config, cache=cache).curve
    given = DistillConfig.model_validate(config)
    start = tmp_path / "start"
    start.mkdir()
    Distill().initial(given, start, cache)
    untrained = Distill().evaluate(given, start, Split.SELECTION, cache)["eval_loss"]
    rows = DistillTask.open(given, cache).dataset.sequences(Split.SELECTION)
    shares = np.bincount(np.asarray(rows[:, 1:]).ravel()) / rows[:, 1:].size
    unigram = -float(np.sum(shares[shares > 0] * np.log(shares[shares > 0])))
    assert curve[200]["eval_loss"] < curve[100]["eval_loss"] < untrained
    assert curve[200]["eval_loss"] < unigram


def test_students_of_a_folder_have_its_tokenizer(tmp_path: Path, cache: Path) -> None:
    """From scratch and pretrained; what they write is a model of its own."""
    write_base(tmp_path / "teacher", cache)
    scratch = {**TINY, "teacher": str(tmp_path / "teacher")}
    run_trial(tmp_path / "scratch", "distill", scratch, cache=cache)
    student = newest_checkpoint(tmp_path / "scratch").folder
    tokenizers = [(f / "tokenizer.json").read_bytes() for f in (tmp_path / "teacher", student)]
    assert tokenizers[0] == tokenizers[1]
    shape = ("hidden_size", "num_layers", "experts")
    more = {k: v for k, v in scratch.items() if k not in shape} | {
        "model_name_or_path": str(student),
        "lora": {"rank": 2},
    }
    assert DistillConfig.model_validate(more).missing_files() == []
    curve = run_trial(tmp_path / "more", "distill", more, cache=cache).curve
    assert curve[6]["eval_loss"] < curve[2]["eval_loss"]


def test_plan_refuses_a_teacher_that_does_not_fit(tmp_path: Path, cache: Path) -> None:
    base, other = tmp_path / "base", tmp_path / "other"
    write_base(base, cache)
    write_base(other, cache)

    def problems(**changes: Any) -> str:
        config = {**TINY, "teacher": str(base), **changes}
        assert DistillConfig.problems(config) == []
        ((path, text),) = DistillConfig.model_validate(config).missing_files()
        assert path == ("teacher",)
        return text

    assert problems(teacher="/no/teacher").startswith("no such folder: /no/teacher (from ")
    assert "base: the model has 16 positions, and sequence_length is larger" in problems(
        sequence_length=17
    )
    pretrained = {"model_name_or_path": str(other)}
    shape = ("hidden_size", "num_layers", "experts")
    student = {k: v for k, v in TINY.items() if k not in shape}
    file = other / "tokenizer.json"
    tokenizer = json.loads(text := file.read_text())
    numbers = tokenizer["model"]["vocab"]
    numbers["A"], numbers["B"] = numbers["B"], numbers["A"]
    file.write_text(json.dumps(tokenizer))
    swapped = DistillConfig.model_validate({**student, "teacher": str(base), **pretrained})
    ((_, found),) = swapped.missing_files()
    numbers = f"'A' is token {numbers['B']} here and token {numbers['A']} there"
    assert f"its tokenizer is not that of model_name_or_path: {numbers};" in found
    with pytest.raises(UserError, match="base: its tokenizer is not that of model_name_or_path"):
        run_trial(tmp_path / "t", "distill", swapped.model_dump(exclude_unset=True), cache=cache)
    file.write_text(text)
    (base / "model.safetensors").unlink()
    assert "has no *.safetensors, so it is no model of transformers" in problems()


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"vocab_size": 400}, "vocab_size must be that of its teacher, 300, got 400; remove it"),
        ({"teacher": {"data": {}}}, "teacher.data: it is that of the trials; remove it"),
        ({"teacher": {"lora": {}}}, "teacher.lora: not of a model that is trained here"),
        ({"teacher": {"max_step": 3}}, "teacher.max_step: unknown hyperparameter 'max_step' (did"),
        ({"model_name_or_path": "gpt2"}, "num_layers"),
    ],
)
def test_mistakes_are_named(changes: dict[str, Any], problem: str) -> None:
    ((_, text),) = DistillConfig.problems({**TINY, **changes})
    assert problem in text


def test_another_vocabulary_is_named() -> None:
    problem = tokens_problem({"a": 0, "b": 1}, {"a": 0})
    assert problem is not None
    assert "here and no token there" in problem
