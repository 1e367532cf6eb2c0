"""Hyperparameters of `grpo`: those of `causal_lm`, with questions and rewards; no torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from search_spaces.errors import UserError
from trainables.config import Problem, path_in
from trainables.data.conversations.config import GENERATED_HELP, AnswersConfig
from trainables.data.conversations.forms import ANSWERS, AUTO
from trainables.data.text.config import Sets
from trainables.grpo.rewards import RewardConfig, call_problem, problem_of
from trainables.sft.config import TunedConfig
from trainables.training.start_model import resolve_reward_model, reward_model_problem
from trainables.user_code import loader


class QuestionsConfig(AnswersConfig):
    """Questions, and what rewards compare completions with; split 90/5/5 as of `sft`."""

    selection: ClassVar[Sets] = {}  # type: ignore[misc]  # it evaluates by rewards
    source: Literal["arithmetic", "countdown", "sorting", "format", "files"] = Field(
        "arithmetic", description=GENERATED_HELP
    )
    answer: str = Field(
        AUTO,
        description="column of what rewards get as the answer: the expected text, or for `tests`"
        " code that raises an exception if the completion before it is wrong; auto: it is"
        f" recognized, as one of {', '.join(ANSWERS)}",
    )
    on_long: Literal["skip", "refuse"] | None = Field(
        None,
        description="reaction to a question that has more than sequence_length + 1 tokens with its"
        " answer: skip; refuse; null: that of on_bad_data",
    )


class GRPOConfig(TunedConfig):
    """Hyperparameters of reinforcement learning by group-relative advantages."""

    task_class: ClassVar[str] = "trainables.grpo.task:GRPOTask"

    data: QuestionsConfig = Field(
        default_factory=lambda: QuestionsConfig(), description="the questions"
    )
    rewards: dict[str, RewardConfig] = Field(
        default_factory=lambda: {"exact": RewardConfig()},
        min_length=1,
        description="rewards by name: exact (the answer), equation (the answer's numbers and"
        " value), words (the share of the answer's words that are there), format (a pattern),"
        " length, parses (as Python), tests (run in a process with limits), or"
        " path/to/script.py:function, which is called with the keywords question, answer and"
        " completion; any other name with a path is a reward model (model: FOLDER). The sum is"
        " learned",
    )
    solved_by: str | None = Field(
        None,
        description="the reward that is 1 if a completion solves its question, for pass_at_1; null:"
        " the only one",
    )
    batch_size: int = Field(8, gt=0, description="questions per step, of all workers together")
    group_size: int = Field(8, ge=2, description="completions of a question")
    micro_batch_size: int | None = Field(
        None,
        gt=0,
        description="questions whose completions a worker computes at once in an update, at most;"
        " null: as many as have 8,192 tokens",
    )
    updates_per_step: int = Field(
        1, gt=0, description="optimizer steps on the completions of a step, each on all of them"
    )
    temperature: float = Field(1.0, gt=0, description="of the sampled completions, and of the loss")
    max_new_tokens: int = Field(32, gt=0, description="tokens of a completion, at most")
    sequence_length: int = Field(
        128,
        ge=2,
        description="tokens of a question with its answer or a completion, at most; longer ones are"
        " bad data",
    )
    loss: Literal["grpo", "dapo", "dr_grpo"] = Field(
        "dapo",
        description="what tokens weigh. dapo: all the same; grpo: each completion the same;"
        " dr_grpo: all the same, and divided by max_new_tokens in place of their number",
    )
    scale_rewards: Literal["group", "none"] = Field(
        "group",
        description="group: advantages are divided by the standard deviation of their group's"
        " rewards; none: they are not",
    )
    epsilon: float = Field(
        0.2, gt=0, description="a token's probability ratio counts down to 1 - epsilon"
    )
    epsilon_high: float | None = Field(
        None, gt=0, description="and up to 1 + epsilon_high; null: epsilon"
    )
    beta: float = Field(
        0.0,
        ge=0,
        description="weight of the divergence from the first model (KL, per token); 0: it is not"
        " held in memory",
    )
    learning_rate: float = Field(1e-3, gt=0, description="peak step size; see causal_lm")
    max_steps: int = Field(
        60, gt=0, description="steps of a whole trial: each samples completions and learns of them"
    )
    eval_every: int = Field(10, gt=0, description="steps between reports")
    eval_sequences: int = Field(
        64, gt=0, description="questions answered at each report, spread over the split"
    )
    eval_samples: int = Field(4, gt=0, description="k: sampled completions of each for pass_at_k")

    @model_validator(mode="after")
    def _complete(self) -> GRPOConfig:
        if self.max_new_tokens >= self.sequence_length:
            raise ValueError(
                f"max_new_tokens {self.max_new_tokens} leaves no room for a question in"
                f" sequence_length {self.sequence_length}"
            )
        for name, reward in self.rewards.items():
            if problem := problem_of(name, reward):
                raise ValueError(f"rewards.{name}: {problem}")
        if self.solved_by is None and len(self.rewards) > 1:
            raise ValueError(f"set solved_by to one of {', '.join(self.rewards)}")
        if self.solved_by is not None and self.solved_by not in self.rewards:
            raise ValueError(
                f"solved_by must be one of {', '.join(self.rewards)}, got {self.solved_by}"
            )
        return self

    @property
    def solves(self) -> str:
        """The reward that tells whether a question is solved."""
        return self.solved_by or next(iter(self.rewards))

    def same_as_start(self) -> dict[str, Any]:
        """The data, too."""
        return {**super().same_as_start(), "data": self.data}

    def missing_files(self) -> list[Problem]:
        """Those of the data and the model, and functions of rewards."""
        found = super().missing_files()
        for name in (name for name in self.rewards if ":" in name):
            try:
                loader.find(name)
                problem = call_problem(name)
            except UserError as e:
                problem = str(e).removeprefix("trainable ")
            if problem:
                found.append((("rewards", name), problem))
        for name, path in ((name, r.path) for name, r in self.rewards.items() if r.path):
            if problem := reward_model_problem(path):
                found.append((("rewards", name), problem))
        return found

    @classmethod
    def resolve_paths(cls, config: dict[str, Any], folder: Path) -> dict[str, Any]:
        """Resolve the paths of the data, the model and rewards."""
        fixed, rewards = super().resolve_paths(config, folder), config.get("rewards")
        if isinstance(rewards, dict):
            fixed["rewards"] = {
                _resolved(str(n), folder): resolve_reward_model(r, folder)
                for n, r in rewards.items()
            }
        if isinstance(name := config.get("solved_by"), str):
            fixed["solved_by"] = _resolved(name, folder)
        return fixed


def _resolved(name: str, folder: Path) -> str:
    where, colon, function = name.rpartition(":")
    return f"{path_in(folder, where) or where}{colon}{function}" if where.endswith(".py") else name
