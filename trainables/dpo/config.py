"""The trainable `dpo`: `causal_lm` with pairs of answers. No torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from search_spaces.nested import group
from trainables.causal_lm.trainable import CausalLM
from trainables.data.bad_rows import BadRow
from trainables.data.conversations.config import GENERATED_HELP, AnswersConfig, RowsConfig
from trainables.data.conversations.rows import Columns, Conversation, Row, read_rows, without_weight
from trainables.data.text.config import Sets
from trainables.sft.config import TunedConfig
from trainables.training.trainable import TaskTrainable


class PairsConfig(RowsConfig):
    """Questions with a preferred and a rejected answer; split 90/5/5 as of `sft`."""

    made_columns: ClassVar[dict[str, str]] = {
        "question": "question",
        "chosen": "answer",
        "rejected": "rejected",
    }
    later_fields: ClassVar[tuple[str, ...]] = (*RowsConfig.later_fields, "label", "answer")
    selection: ClassVar[Sets] = {}  # type: ignore[misc]  # pairs have none

    source: Literal["arithmetic", "countdown", "sorting", "format", "files"] = Field(
        "arithmetic", description=f"right and wrong answers of {GENERATED_HELP}"
    )
    chosen: str = Field("chosen", description="column of the preferred answers")
    rejected: str = Field("rejected", description="column of the rejected answers")
    label: str | None = Field(
        None,
        description="kto: column that says whether the one answer of a row is desirable, true or"
        " false (or 1 or 0); null: rows have pairs, of which kto makes two answers each",
    )
    answer: str = Field("answer", description="with label: column of the answers")

    def rows(self, files: list[Path]) -> Iterator[Row]:
        """The preferred answer of each question, followed by the rejected one."""
        if self.label is not None:
            columns = Columns(self.question, self.answer, unit=self.split_by, label=self.label)
            yield from read_rows(files, columns)
            return
        each = (
            read_rows(files, Columns(self.question, answer, unit=self.split_by))
            for answer in (self.chosen, self.rejected)
        )
        for pair in zip(*each, strict=True):
            yield from _pair(*pair)

    @property
    def answer_field(self) -> str:
        """Of the preferred answers; with labels, of the only ones."""
        return "chosen" if self.label is None else "answer"

    @property
    def answers_of_row(self) -> int:
        """Two: they are used together, or not at all; one with labels."""
        return 2 if self.label is None else 1

    def _is_plain(self) -> bool:
        return self.label is None

    def recognised(self, files: list[Path]) -> tuple[Self, str]:
        """As of the preferred answers, or of those with labels."""
        found, form = super().recognised(files)
        if self.label is not None:
            return found, f"{form} with labels"
        kind = "conversational " if form.startswith("conversational") else ""
        return found, f"{kind}preference pairs"

    def check_columns(self) -> None:
        """Refuse columns that are not read.

        Raises:
            ValueError: some are given.
        """
        pairs = self.label is None
        for name in ("answer",) if pairs else ("chosen", "rejected"):
            if getattr(self, name) != PairsConfig.model_fields[name].default:
                raise ValueError(f"data.{name}: no effect {'without' if pairs else 'with'} label")

    def as_answers(self) -> AnswersConfig:
        """The questions with their preferred answers."""
        given = self.model_dump(exclude={"chosen", "rejected", "label", "answer"})
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
    begins = (row.messages[: same + 1] for row in (chosen, rejected))
    if not all(any(m["role"] == "assistant" for m in begin) for begin in begins):
        problem = f"{chosen.place}: the preferred and the rejected answer have other questions"
        return chosen, BadRow(problem)
    common = {"unread": chosen.unread & rejected.unread, "unit": chosen.unit}
    return _behind(chosen, same, common), _behind(rejected, same, common)


def _behind(row: Conversation, count: int, common: dict[str, Any]) -> Conversation:
    """A row whose first messages do not count, with what it has in common with the other one."""
    first, rest = row.messages[:count], row.messages[count:]
    return replace(row, messages=(*without_weight(first), *rest), **common)


_KEYS_OF = {
    "label_smoothing": ("sigmoid", "simpo"),
    "gamma": ("simpo",),
    "desirable_weight": ("kto",),
    "undesirable_weight": ("kto",),
}
"""Hyperparameter → the losses that have it."""


class DPOConfig(TunedConfig):
    """Hyperparameters of learning from preferences."""

    task_class: ClassVar[str] = "trainables.dpo.task:DPOTask"

    data: PairsConfig = Field(
        default_factory=lambda: PairsConfig(), description="the pairs of answers"
    )
    loss: Literal["sigmoid", "ipo", "orpo", "simpo", "kto"] = Field(
        "sigmoid",
        description="sigmoid: of DPO; ipo: the squared distance of the margin per token from"
        " 1 / (2 beta), which is bounded; orpo: odds of the answers, beside the likelihood of the"
        " preferred text; simpo: log-probabilities per token, with a margin; kto: of single"
        " answers, desirable or not. orpo and simpo have no first model to compare with",
    )
    beta: float = Field(
        0.1,
        gt=0,
        description="how much a log-probability must change to count; small: much. orpo: weight of"
        " the odds; simpo: scale of the log-probabilities per token, 2 to 2.5 in its paper",
    )
    label_smoothing: float = Field(
        0.0,
        ge=0,
        lt=0.5,
        description="sigmoid and simpo: the share of pairs that are the wrong way round",
    )
    gamma: float = Field(
        0.5, ge=0, description="simpo: how much more reward a preferred answer must have"
    )
    desirable_weight: float = Field(1.0, ge=0, description="kto: weight of desirable answers")
    undesirable_weight: float = Field(1.0, ge=0, description="kto: weight of undesirable answers")
    batch_size: int = Field(
        16,
        gt=0,
        description="rows (pairs, or answers with labels) per step, of all workers together",
    )
    micro_batch_size: int | None = Field(
        None, gt=0, description="rows that a worker computes at once; null: all of its share"
    )
    sequence_length: int = Field(
        256, ge=2, description="tokens of a question and an answer; longer ones are bad data"
    )
    learning_rate: float = Field(1e-4, gt=0, description="peak step size; see causal_lm")
    eval_sequences: int = Field(
        128, gt=0, description="rows evaluated at each report, spread over the split"
    )

    @model_validator(mode="after")
    def _complete(self) -> DPOConfig:
        for name, losses in _KEYS_OF.items():
            given = getattr(self, name) != type(self).model_fields[name].default
            if given and self.loss not in losses:
                raise ValueError(f"{name} has an effect only with loss: {' or '.join(losses)}")
        if self.loss == "kto" and self.batch_size < 2:
            raise ValueError("batch_size: kto compares rows of a batch; it must be 2 or more")
        self.data.check_columns()
        if self.data.label is not None:
            if self.loss != "kto":
                raise ValueError("data.label: only loss: kto learns from single answers")
            if self.sft is not None:
                raise ValueError(
                    "sft: it would learn all answers of data.label, also bad ones;"
                    " set model_name_or_path"
                )
        return self

    @property
    def has_reference(self) -> bool:
        """Whether the loss compares with the first model."""
        return self.loss not in ("orpo", "simpo")

    def same_as_start(self) -> dict[str, Any]:
        """The preferred answers, too."""
        return {**super().same_as_start(), "data": self.data.as_answers()}


OF_PAIRS = ("ranking_accuracy", "reward_margin")
"""Metrics that single answers do not have."""


class DPO(TaskTrainable[DPOConfig]):
    """A causal language model that learns which answers are preferred (DPO and its kin)."""

    Config = DPOConfig
    metric_names = (
        "accuracy",
        "ranking_accuracy",
        "reward_margin",
        "chosen_reward",
        "rejected_reward",
        "kl",
        *(n for n in CausalLM.metric_names if n not in ("perplexity", "bits_per_byte")),
    )
    metric_depends_on: ClassVar = {
        "eval_loss": ("loss", "beta", *_KEYS_OF),
        **dict.fromkeys(("reward_margin", "chosen_reward", "rejected_reward"), ("loss", "beta")),
        "ranking_accuracy": ("data",),
    }
    elastic = True
    runs_on_mps = True

    def reported_metrics(self, config: Mapping[str, Any]) -> tuple[str, ...]:
        """Single answers have no margins; only kto has a divergence."""
        missing = set() if config.get("loss") == "kto" else {"kl"}
        if group(config.get("data")).get("label") is not None:
            missing |= set(OF_PAIRS)
        return tuple(name for name in self.metric_names if name not in missing)
