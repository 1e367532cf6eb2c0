"""Hyperparameters of `sft`: those of `causal_lm`, with other data; no torch."""

from __future__ import annotations

import glob
import json
import os
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from trainables.causal_lm.config import CausalLMConfig, config_of_other
from trainables.causal_lm.data_config import SPLITS, Globs, Splits, paths_in
from trainables.config import Problem
from trainables.sft.rows import problem_of, read_rows


class AnswersConfig(BaseModel):
    """Questions with answers, or conversations; split 90/5/5 into train, selection and test."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    source: Literal["docstrings", "files"] = Field(
        "docstrings",
        description="docstrings: what functions, classes and modules of this machine's Python"
        " standard library do, written to a Parquet file; files: `paths`",
    )
    paths: Globs = Field(
        default_factory=list,
        description="files: a glob or a list of globs of .parquet and .jsonl files",
    )
    question: str = Field("question", description="column of the questions")
    answer: str = Field("answer", description="column of the answers")
    messages: str | None = Field(
        None,
        description="column of conversations, lists of {role, content}, in place of question and"
        " answer; every message of the assistant is an answer",
    )
    split_by: str | None = Field(
        None,
        description="column whose equal values stay in one split; null: the question (of a"
        " conversation: all before the first answer; of docstrings: the module)",
    )
    splits: Splits = Field("digest", description=f"files: {SPLITS}")
    on_bad_data: Literal["fail", "skip"] = Field(
        "fail",
        description="reaction to a row that cannot be read, has an empty answer or more than"
        " sequence_length tokens; skip lists them in the log and in the cache's meta.json",
    )
    max_rows: int | None = Field(
        None, gt=0, description="rows to use at most; null: 6,000 of docstrings, all of files"
    )

    @model_validator(mode="after")
    def _paths_belong_to_files(self) -> AnswersConfig:
        if self.source == "files" and not self.paths:
            raise ValueError("source 'files' needs paths, for example paths: answers/*.parquet")
        if self.source != "files" and (self.paths or self.messages or self.split_by):
            raise ValueError("paths, messages and split_by have an effect only with source: files")
        return self

    @property
    def columns(self) -> list[str]:
        """Names of the columns to read."""
        wanted = [self.messages] if self.messages else [self.question, self.answer]
        return [*wanted, *([self.split_by] if self.split_by else [])]

    def files(self) -> list[Path]:
        """The files that match, in a fixed order."""
        every = (glob.glob(str(Path(p).expanduser()), recursive=True) for p in self.paths)
        return sorted({Path(file) for found in every for file in found if os.path.isfile(file)})


class SFTConfig(CausalLMConfig):
    """Hyperparameters of supervised fine-tuning."""

    task: ClassVar[str] = "trainables.sft.task:open_task"

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
    data: AnswersConfig = Field(  # type: ignore[assignment]
        default_factory=lambda: AnswersConfig(), description="the questions and answers"
    )

    @model_validator(mode="after")
    def _one_length(self) -> SFTConfig:
        if self.epochs is not None and "max_steps" in self.model_fields_set:
            raise ValueError("epochs and max_steps: only one of them has an effect; remove one")
        return self

    @model_validator(mode="after")
    def _one_start(self) -> SFTConfig:
        if self.start is not None:
            if self.model_name_or_path is not None:
                raise ValueError("pretrain and model_name_or_path exclude each other; remove one")
            self._refuse_shape("pretrain")
        return self

    @property
    def start(self) -> CausalLMConfig | None:
        """Hyperparameters of the model that is trained for all trials to start from."""
        if self.pretrain is None:
            return None
        same = {"sequence_length": self.sequence_length, "init_seed": self.init_seed}
        return config_of_other("pretrain", self.pretrain, same)

    @property
    def num_parameters(self) -> int | None:
        """Weights of the model; None for a pretrained one in a folder."""
        return super().num_parameters if self.start is None else self.start.num_parameters

    @property
    def checkpoint_bytes(self) -> int | None:
        """Size of float32 weights and of the optimizer's averages of their gradients."""
        if self.start is None:
            return super().checkpoint_bytes
        return self.start.model_copy(update={"optimizer": self.optimizer}).checkpoint_bytes

    def missing_files(self) -> list[Problem]:
        """Missing files and models, a model with too few positions, and rows that are no data."""
        found = super().missing_files()
        if self.start is not None:
            found += [(("pretrain", *path), text) for path, text in self.start.missing_files()]
        positions = _positions(self.model_name_or_path)
        if positions is not None and positions < self.sequence_length:
            problem = f"the model has {positions} positions, got {self.sequence_length}"
            found.append((("sequence_length",), problem))
        if not found and self.data.paths:
            found += [(("data",), line) for line in _bad_rows(self)]
        return found

    @classmethod
    def for_new_sweep(cls, config: dict[str, Any]) -> dict[str, Any]:
        """Add the new defaults of the model, or of the one that it starts from."""
        pretrain = config.get("pretrain")
        if not isinstance(pretrain, dict):
            return super().for_new_sweep(config)
        return {**config, "pretrain": CausalLMConfig.for_new_sweep(pretrain)}

    @classmethod
    def resolve_paths(cls, config: dict[str, Any], folder: Path) -> dict[str, Any]:
        """Resolve the paths of the data, the model and the text of its pretraining."""
        fixed, pretrain = super().resolve_paths(config, folder), config.get("pretrain")
        if isinstance(pretrain, dict) and isinstance(data := pretrain.get("data"), dict):
            fixed["pretrain"] = {**pretrain, "data": paths_in(data, folder)}
        return fixed


def _positions(model: str | None) -> int | None:
    """Largest number of tokens of a model in a folder, by its `config.json`."""
    file = Path(model or "").expanduser() / "config.json"
    if not model or not file.is_file():
        return None
    told: dict[str, Any] = json.loads(file.read_text())
    return told.get("max_position_embeddings") or told.get("n_positions")


_CHECKED: dict[str, list[str]] = {}
"""Problems by settings and times of files: a sweep file is checked with many configurations."""
CHECKED_BYTES = 200 << 20
"""Files beyond this many bytes are first read by a worker."""


def _bad_rows(config: SFTConfig) -> list[str]:
    data, files = config.data, list[Path]()
    size = 0
    for file in data.files():
        size += file.stat().st_size
        if files and size > CHECKED_BYTES:
            break
        files.append(file)
    times = [(str(f), f.stat().st_mtime_ns, f.stat().st_size) for f in files]
    tokenizer = Path(config.model_name_or_path or "").expanduser() / "tokenizer.json"
    most = config.sequence_length + 1
    key = json.dumps([data.model_dump(), times, str(tokenizer), most])
    if key not in _CHECKED:
        rows = read_rows(files, data.columns, data.messages)
        _CHECKED[key] = problem_of(rows, tokenizer, most, skip=data.on_bad_data == "skip")
    return _CHECKED[key]
