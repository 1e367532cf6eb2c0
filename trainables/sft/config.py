"""The trainable `sft`: `causal_lm` with other data. No torch."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from search_spaces.errors import UserError
from search_spaces.layout import Layout
from trainables.causal_lm.config import CausalLMConfig
from trainables.causal_lm.shape import TOKENIZER
from trainables.causal_lm.trainable import CausalLM
from trainables.config import Problem
from trainables.data.conversations.check import check_rows
from trainables.data.conversations.config import AnswersConfig, RowsConfig
from trainables.sft.start import StartConfig
from trainables.training.trainable import TaskTrainable


class RowsTrainedConfig(StartConfig):
    """Hyperparameters of a training on questions with answers."""

    data: RowsConfig  # type: ignore[assignment]

    def missing_files(self) -> list[Problem]:
        """Missing files and models, a model with too few positions, and rows that are no data."""
        found = super().missing_files()
        checked = {} if found else self._checked()
        return found + [(place, problem) for place, (problem, _) in checked.items() if problem]

    def notes(self) -> list[str]:
        """What the rows of files are, and how many."""
        notes = [f"{'.'.join(place)}: {note}" for place, (_, note) in self._checked().items()]
        return [*notes, *super().notes()]

    def _checked(self) -> dict[tuple[str, ...], tuple[str | None, str]]:
        """`checked_rows` of the files, by the key that names them."""
        own = {("data",): self.data} if self.data.paths else {}
        sets = self.data.named_sets().items()
        every = own | {("data", "selection", name): data for name, data in sets}
        return {place: checked_rows(self, data) for place, data in every.items()}


class SFTConfig(RowsTrainedConfig):
    """Hyperparameters of supervised fine-tuning."""

    task_class: ClassVar[str] = "trainables.sft.task:SFTTask"
    start_key: ClassVar[str] = "pretrain"

    pretrain: dict[str, Any] | None = Field(
        None,
        description="in place of model_name_or_path: hyperparameters of causal_lm, with which the"
        " first trial trains the model that all trials start from",
    )
    epochs: float | None = Field(
        None,
        gt=0,
        description="passes over the train split, in place of max_steps; null: max_steps counts",
    )
    sequence_length: int = Field(
        256, ge=2, description="tokens of a sequence; longer conversations are bad data"
    )
    batch_size: int = Field(
        16, gt=0, description="sequences per optimizer step, of all workers together"
    )
    packing: Literal["documents", "none"] = Field(  # type: ignore[assignment]
        "documents",
        description="documents: several conversations share a sequence and do not see each other,"
        " so the losses are those of separate sequences; none: one in each, padded",
    )
    eval_answers: int = Field(
        16,
        ge=0,
        description="questions that are answered at each report, greedily, for exact_match and the"
        " samples in the trial's folder `answers`; 0: none",
    )
    max_new_tokens: int = Field(64, gt=0, description="tokens of an answer at a report, at most")
    data: AnswersConfig = Field(
        default_factory=lambda: AnswersConfig(), description="the questions and answers"
    )

    @property
    def not_in_pipelines(self) -> dict[str, object]:
        """Also answers, which a rank writes with all layers."""
        return {**super().not_in_pipelines, "eval_answers": self.eval_answers}

    @model_validator(mode="after")
    def _one_length(self) -> SFTConfig:
        if self.epochs is not None and "max_steps" in self.model_fields_set:
            raise ValueError("epochs and max_steps: only one of them has an effect; remove one")
        return self


class TunedConfig(RowsTrainedConfig):
    """Hyperparameters of a training that changes a model which answers already."""

    has_dropout: ClassVar[bool] = False
    start_key: ClassVar[str] = "sft"
    start_kind: ClassVar[type[CausalLMConfig]] = SFTConfig

    sft: dict[str, Any] | None = Field(
        None,
        description="in place of model_name_or_path: hyperparameters of sft, with which the first"
        " trial trains the model that all trials start from, on the answers of the same data (of"
        " dpo: the preferred ones)",
    )
    weight_decay: float = Field(0.0, ge=0, description="decay of matrices, per step and lr")
    packing: Literal["none"] = Field(  # type: ignore[assignment]
        "none", description="a sequence has one question"
    )

    @model_validator(mode="after")
    def _has_start(self) -> TunedConfig:
        if self.model_name_or_path is None and self.sft is None:
            raise ValueError(
                "it changes a model that answers: set model_name_or_path to a fine-tuned one, or"
                " sft"
            )
        if self.lora is not None and self.lora.dropout:
            raise ValueError(
                "lora.dropout has no effect: the model is compared with itself, without dropout;"
                " remove it"
            )
        return self

    def layout_memory(self, layout: Layout, *, on_gpu: bool) -> None:
        """Not known: there is another model beside it, or answers are written."""


_CHECKED: dict[str, tuple[str | None, str]] = {}
"""Problem and summary by settings and times of files: many configurations of a file are checked."""
CHECKED_BYTES = 200 << 20
"""Files beyond this many bytes are first read by a worker."""


def checked_rows(config: RowsTrainedConfig, data: RowsConfig) -> tuple[str | None, str]:
    """The first mistake in the rows of files that is not skipped, and what the rows are."""
    every = data.files()
    sizes = itertools.accumulate(file.stat().st_size for file in every)
    files = [f for f, size in zip(every, sizes, strict=True) if size <= CHECKED_BYTES] or every[:1]
    times = [(str(f), f.stat().st_mtime_ns, f.stat().st_size) for f in files]
    tokenizer = Path(config.tokenizer_from or "").expanduser() / "tokenizer.json"
    most = config.sequence_length + 1
    key = json.dumps([data.model_dump(), times, str(tokenizer), most])
    if key in _CHECKED:
        return _CHECKED[key]
    try:
        data, form = data.recognised(files)
        reactions = data.on_bad_data, data.on_long
        problem, count, remarks = check_rows(data.rows(files), tokenizer, most, *reactions)
        part = f" in {len(files)} of {len(every)} files" if len(files) < len(every) else ""
        rows = f"{count // data.answers_of_row:,} rows{part}"
        _CHECKED[key] = problem, f"{form}, {rows}{remarks}"
    except UserError as e:
        _CHECKED[key] = str(e), ""
    return _CHECKED[key]


class SFT(TaskTrainable[SFTConfig]):
    """A causal language model, from scratch or pretrained, that learns to answer questions."""

    Config = SFTConfig
    metric_names = (
        *(name for name in CausalLM.metric_names if name != "bits_per_byte"),
        "exact_match",
    )
    metric_depends_on: ClassVar = {
        "eval_loss": TOKENIZER,
        "perplexity": TOKENIZER,
        "exact_match": ("data",),
    }
    elastic = True
    axes = ("pp", "dp_replicate", "dp_shard", "cp", "tp")
    cuts_sequences = True
