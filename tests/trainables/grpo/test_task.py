"""Rollouts, files of questions, and mistakes in the settings of `grpo`."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from tests.trainables.examples import EXAMPLES
from tests.trainables.local import run_trial
from trainables.causal_lm.model.model import new_model
from trainables.causal_lm.model.objective import masked_attention
from trainables.data.corpora.generated import GENERATED, generate_rows
from trainables.grpo.answers import noise, sample
from trainables.grpo.config import GRPOConfig
from trainables.grpo.loss import token_log_probs
from trainables.training.task import open_task

CONFIG = EXAMPLES["grpo"].config


def started(cache: Path, **changes: Any) -> tuple[GRPOConfig, torch.nn.Module, Any]:
    task = open_task(GRPOConfig.model_validate({**CONFIG, **changes}), cache)
    return task.config, new_model(task.config, task.dataset).eval(), task.dataset


def test_noise_depends_on_its_place_alone() -> None:
    whole = noise(7, 3, range(4), 2, 5)
    assert np.array_equal(whole[4:], noise(7, 3, range(2, 4), 2, 5))
    assert not np.array_equal(whole, noise(7, 4, range(4), 2, 5))
    assert len(np.unique(whole)) == whole.size


def test_completions_do_not_depend_on_what_else_is_sampled(cache: Path) -> None:
    _, model, data = started(cache)
    prompts = [[1, 2, 3], [4, 5], [6, 7, 8, 9]]
    numbers = noise(0, 1, range(3), 1, 6)
    with masked_attention(model):
        together = sample(model, prompts, frozenset([data.end]), 1.3, numbers).texts()
        alone = [
            sample(model, [p], frozenset([data.end]), 1.3, numbers[i : i + 1]).texts()[0]
            for i, p in enumerate(prompts)
        ]
    assert together == alone


def test_log_probabilities_are_those_of_the_training_pass(cache: Path) -> None:
    config, model, data = started(cache, temperature=1.3)
    prompt = [3, 1, 4]
    with masked_attention(model):
        found = sample(model, [prompt], frozenset([data.end]), 1.3, noise(0, 1, range(1), 1, 6))
    size = int(found.lengths[0])
    targets = found.ids[0, :size]
    tokens = torch.tensor([prompt + targets[:-1].tolist()])
    places = torch.arange(len(prompt) - 1, tokens.shape[1])
    with torch.no_grad():
        expected = token_log_probs(model, config, tokens, None, places, targets)
    torch.testing.assert_close(found.log_probs[0, :size], expected, rtol=1e-4, atol=1e-5)


def test_samples_follow_the_distribution(cache: Path) -> None:
    _, model, data = started(cache)
    count = 4000
    with masked_attention(model):
        found = sample(
            model, [[1, 2]] * count, frozenset([data.end]), 1.0, noise(0, 1, range(count), 1, 1)
        )
        logits = model(input_ids=torch.tensor([[1, 2]])).logits[0, -1]
    expected = logits.detach().softmax(-1)
    seen = torch.bincount(found.ids[:, 0], minlength=len(expected)) / count
    assert float((seen - expected).abs().max()) < 5 * (0.25 / count) ** 0.5


def test_several_updates_change_the_ratio_and_one_does_not(tmp_path: Path, cache: Path) -> None:
    tight = {**CONFIG, "epsilon": 1e-3, "beta": 0.0}
    one = run_trial(tmp_path / "one", "grpo", {**tight, "updates_per_step": 1}, cache=cache)
    many = run_trial(tmp_path / "many", "grpo", {**tight, "updates_per_step": 3}, cache=cache)
    assert one.reports[0].metrics["clip_share"] == 0
    assert many.reports[0].metrics["clip_share"] > 0
    assert "kl" not in one.reports[0].metrics


def test_a_file_of_questions_and_a_function_are_learned_from(tmp_path: Path, cache: Path) -> None:
    rows = [f'{{"question": "q{i}", "answer": "a"}}\n' for i in range(60)]
    (tmp_path / "rows.jsonl").write_text("".join(rows))
    (tmp_path / "mine.py").write_text(
        "def short(completion, **row):\n    return -len(completion)\n"
    )
    name = f"{tmp_path / 'mine.py'}:short"
    config = {
        **{k: v for k, v in CONFIG.items() if k not in ("data", "rewards", "solved_by")},
        "data": {"source": "files", "paths": str(tmp_path / "*.jsonl")},
        "rewards": {name: {}},
    }
    resolved = GRPOConfig.resolve_paths({**config, "rewards": {"mine.py:short": {}}}, tmp_path)
    assert list(resolved["rewards"]) == [name]
    found = run_trial(tmp_path / "trial", "grpo", config, cache=cache)
    first, last = (found.reports[i].metrics["reward"] for i in (0, -1))
    assert last > first


@pytest.mark.parametrize(
    ("takes", "fits"),
    [
        ("question, answer, completion", True),
        ("completion, *, scale=2, **row", True),
        ("completion", False),
        ("questions, answers, completions", False),
        ("question, answer, completion, model", False),
        ("question, answer, completion, *, model", False),
    ],
)
def test_functions_that_take_other_arguments_are_refused(
    tmp_path: Path, takes: str, fits: bool
) -> None:
    (tmp_path / "mine.py").write_text(f"def score({takes}):\n    return 0\n")
    name = f"{tmp_path / 'mine.py'}:score"
    config = GRPOConfig.model_validate({**CONFIG, "rewards": {name: {}}, "solved_by": None})
    assert [text.partition(", got ")[2] for path, text in config.missing_files()] == (
        [] if fits else [f"({takes})"]
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sft": None}, "set model_name_or_path to a fine-tuned one, or sft"),
        ({"solved_by": None}, "set solved_by to one of exact, length"),
        ({"solved_by": "tests"}, "solved_by must be one of exact, length, got tests"),
        ({"max_new_tokens": 48}, "leaves no room for a question"),
        ({"rewards": {"exct": {}}}, "rewards.exct: unknown reward"),
        ({"sft": {"data": {}}}, "sft.data: it is that of the trials"),
        ({"data": {"source": "files"}}, "needs paths"),
        ({"hidden_size": 32}, "hidden_size: no effect with sft"),
    ],
)
def test_mistakes(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        GRPOConfig.model_validate({**CONFIG, **changes})


@pytest.mark.parametrize("source", GENERATED)
def test_made_rows_are_different_and_their_wrong_answers_wrong(source: str) -> None:
    rows = generate_rows(source, None, 50)
    assert rows == generate_rows(source, None, 50)
    assert len({question for question, _, _ in rows}) == 50
    assert all(right != wrong for _, right, wrong in rows)
