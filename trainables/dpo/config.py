"""The trainable `dpo`: `causal_lm` with pairs of answers. No torch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from trainables.causal_lm.trainable import CausalLM
from trainables.data.bad_rows import BadRow
from trainables.data.conversations.config import GENERATED_HELP, AnswersConfig, RowsConfig
from trainables.data.conversations.rows import Columns, Conversation, Row, read_rows, without_weight
from trainables.sft.config import TunedConfig
from trainables.training.trainable import TaskTrainable


class PairsConfig(RowsConfig):
    """Questions with a preferred and a rejected answer; split 90/5/5 as of `sft`."""

    made_columns: ClassVar[dict[str, str]] = {
        "question": "question",
        "chosen": "answer",
        "rejected": "rejected",
    }

    source: Literal["arithmetic", "countdown", "sorting", "format", "files"] = Field(
        "arithmetic", description=f"right and wrong answers of {GENERATED_HELP}"
    )
    chosen: str = Field("chosen", description="column of the preferred answers")
    rejected: str = Field("rejected", description="column of the rejected answers")

    def rows(self, files: list[Path]) -> Iterator[Row]:
        """The preferred answer of each question, followed by the rejected one."""
        each = (
            read_rows(files, Columns(self.question, answer, unit=self.split_by))
            for answer in (self.chosen, self.rejected)
        )
        for pair in zip(*each, strict=True):
            yield from _pair(*pair)

    @property
    def answers_of_row(self) -> int:
        """Two: they are used together, or not at all."""
        return 2

    def recognised(self, files: list[Path]) -> tuple[Self, str]:
        """As of the preferred answers."""
        found, form = super().recognised(files)
        kind = "conversational " if form.startswith("conversational") else ""
        return found, f"{kind}preference pairs"

    def as_answers(self) -> AnswersConfig:
        """The questions with their preferred answers."""
        given = self.model_dump(exclude={"chosen", "rejected"})
        made = {"answer": self.chosen} if self.source == "files" else {}
        return AnswersConfig.model_validate({**given, **made})


def _pair(chosen: Row, rejected: Row) -> tuple[Row, Row]:
    """Two answers; what they have in common is no part of them."""
    if isinstance(chosen, BadRow) or isinstance(rejected, BadRow):
        return chosen, rejected
    pairs = enumerate(zip(chosen.messages, rejected.messages, strict=False))
    least = min(len(chosen.messages), len(rejected.messages))
    same = next((i for i, (one, other) in pairs if one != other), least)
    if same == least:
        problem = f"{chosen.place}: the preferred and the rejected answer are the same"
        return chosen, BadRow(problem)
    unread = chosen.unread & rejected.unread
    return _behind(chosen, same, unread), _behind(rejected, same, unread)


def _behind(row: Conversation, count: int, unread: frozenset[str]) -> Conversation:
    """A row whose first messages do not count, with the columns that no answer is in."""
    first, rest = row.messages[:count], row.messages[count:]
    return replace(row, messages=(*without_weight(first), *rest), unread=unread)


class DPOConfig(TunedConfig):
    """Hyperparameters of direct preference optimisation."""

    task_class: ClassVar[str] = "trainables.dpo.task:DPOTask"

    data: PairsConfig = Field(
        default_factory=lambda: PairsConfig(), description="the pairs of answers"
    )
    beta: float = Field(
        0.1, gt=0, description="how much a log-probability must change to count; small: much"
    )
    loss: Literal["sigmoid", "ipo"] = Field(
        "sigmoid",
        description="sigmoid: of DPO; ipo: the squared distance of the margin per token from"
        " 1 / (2 beta), which is bounded",
    )
    label_smoothing: float = Field(
        0.0, ge=0, lt=0.5, description="sigmoid: the share of pairs that are the wrong way round"
    )
    batch_size: int = Field(16, gt=0, description="pairs per step, of all workers together")
    micro_batch_size: int | None = Field(
        None, gt=0, description="pairs that a worker computes at once; null: all of its share"
    )
    sequence_length: int = Field(
        256, ge=2, description="tokens of a question and an answer; longer ones are bad data"
    )
    learning_rate: float = Field(1e-4, gt=0, description="peak step size; see causal_lm")
    eval_sequences: int = Field(
        128, gt=0, description="pairs evaluated at each report, spread over the split"
    )

    @model_validator(mode="after")
    def _complete(self) -> DPOConfig:
        if self.label_smoothing and self.loss != "sigmoid":
            raise ValueError("label_smoothing has an effect only with loss: sigmoid")
        return self

    def same_as_start(self) -> dict[str, Any]:
        """The preferred answers, too."""
        return {**super().same_as_start(), "data": self.data.as_answers()}


class DPO(TaskTrainable[DPOConfig]):
    """A causal language model that learns which of two answers is preferred (DPO)."""

    Config = DPOConfig
    metric_names = (
        "accuracy",
        "reward_margin",
        "chosen_reward",
        "rejected_reward",
        *(n for n in CausalLM.metric_names if n not in ("perplexity", "bits_per_byte")),
    )
    elastic = True
    runs_on_mps = True
