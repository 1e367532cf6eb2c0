"""A reward model of `classifier` as a reward of `grpo`."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from results.trial_paths import TrialPaths
from search_spaces.errors import UserError
from tests.trainables.examples import EXAMPLES
from tests.trainables.local import newest_checkpoint, run_trial
from trainables.base import Split
from trainables.classifier.scorer import open_reward_model
from trainables.data.conversations.rows import Conversation
from trainables.grpo.config import GRPOConfig
from trainables.registry import resolve
from trainables.training.task import open_task

REWARD = EXAMPLES["classifier, reward"].config
GRPO = {k: v for k, v in EXAMPLES["grpo"].config.items() if k not in ("rewards", "solved_by")}


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a trial that trained a reward model."""
    folder = tmp_path_factory.mktemp("reward")
    run_trial(folder / "t", "classifier", REWARD, cache=folder / "cache")
    return folder / "t"


def scores(weights: Path, questions: list[dict[str, Any]], answers: list[str]) -> list[float]:
    judge = open_reward_model(str(weights), "float32", torch.device("cpu"))
    talks = [
        Conversation("", (*q["messages"], {"role": "assistant", "content": answer}), "")
        for q, answer in zip(questions, answers, strict=True)
    ]
    return judge.scores(talks)


def test_scores_are_those_of_the_trained_pairs(trial: Path) -> None:
    trainable, cache = resolve("classifier"), trial.parent / "cache"
    config = trainable.Config.model_validate(REWARD)
    weights = newest_checkpoint(trial).folder
    task: Any = open_task(config, cache)
    every = task.dataset.questions(Split.SELECTION)
    each = trainable.examples(config, weights, Split.SELECTION, cache)
    for name, part in (("chosen_reward", every[::2]), ("rejected_reward", every[1::2])):
        found = scores(weights, part, [q["answer"] for q in part])
        assert found == pytest.approx(each[name], abs=1e-5)


def test_grpo_learns_from_the_scores(trial: Path, tmp_path: Path) -> None:
    rewards = {"model": str(trial), "length": {"weight": 0}}
    given = GRPOConfig.resolve_paths({**GRPO, "rewards": rewards, "solved_by": "length"}, Path())
    weights = newest_checkpoint(trial).folder
    assert given["rewards"]["model"] == str(weights)
    channel = run_trial(tmp_path / "t", "grpo", given, cache=trial.parent / "cache")
    last = channel.reports[-1]
    assert last.metrics["reward"] == pytest.approx(last.metrics["reward_model"])
    file = TrialPaths(tmp_path / "t").answers(last.step)
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    asked = [{"messages": [{"role": "user", "content": line["question"]}]} for line in lines]
    found = scores(weights, asked, [line["answer"] for line in lines])
    assert found == pytest.approx([line["rewards"]["model"] for line in lines], abs=1e-5)


def test_empty_completion_has_a_score(trial: Path) -> None:
    asked = [{"messages": [{"role": "user", "content": "1+1="}]}]
    assert np.isfinite(scores(newest_checkpoint(trial).folder, asked, [""])).all()


def test_model_with_several_outputs_is_refused_at_plan(tmp_path: Path, cache: Path) -> None:
    run_trial(tmp_path / "t", "classifier", EXAMPLES["classifier"].config, cache=cache)
    weights = newest_checkpoint(tmp_path / "t").folder
    config = GRPOConfig.model_validate({**GRPO, "rewards": {"model": str(weights)}})
    assert [(p, "num_labels" in t) for p, t in config.missing_files()] == [
        (("rewards", "model"), True)
    ]
    with pytest.raises(UserError, match="num_labels"):
        open_reward_model(str(weights), "float32", torch.device("cpu"))
