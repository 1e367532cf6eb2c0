"""Settings of the rows that a model is fine-tuned on; no torch."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from search_spaces.errors import UserError
from trainables.data.bad_rows import OnBadData, OnLong
from trainables.data.conversations.forms import (
    ANSWERS,
    AUTO,
    MESSAGES,
    QUESTIONS,
    find_columns,
    form_name,
    sample_of,
)
from trainables.data.conversations.rows import Columns, Row, read_rows
from trainables.data.corpora.generated import GENERATED
from trainables.data.readers import matching_files
from trainables.data.text.config import SETS, SPLITS, Globs, NamedSets, Sets, Splits

GENERATED_HELP = (
    "arithmetic: sums; countdown: a number to be made from others; sorting: numbers to be put in"
    " order; format: sums whose result stands between tags. They are made on the spot, as a Parquet"
    " file. files: `paths`"
)


class RowsConfig(NamedSets):
    """Rows of files, or rows that are made; split 90/5/5 into train, selection and test."""

    made_columns: ClassVar[dict[str, str]]
    """The fields that name columns → the columns of rows that are made."""
    later_fields: ClassVar[tuple[str, ...]] = ("splits", "difficulty", "on_long")
    """See `key_settings`."""

    source: str
    difficulty: int | None = Field(
        None,
        gt=0,
        description="arithmetic and format: digits of a number (null: 2); countdown and sorting:"
        " how many numbers (null: 3 and 4)",
    )
    paths: Globs = Field(
        default_factory=list,
        description="files: a glob or a list of globs of .parquet, .jsonl, .json, .csv and .tsv"
        " files (all but the first also with .gz or .zst), of folders of datasets' save_to_disk,"
        " and of data sets of the hub: hf://datasets/OWNER/NAME@REVISION/**/*.parquet",
    )
    question: str = Field(
        AUTO,
        description="column of the questions: texts, or lists of messages; auto: it is recognized,"
        f" as one of {', '.join(QUESTIONS)}",
    )
    split_by: str | None = Field(
        None,
        description="column whose equal values stay in one split; null: the question (of a"
        " conversation: all before the first answer; of docstrings: the module)",
    )
    splits: Splits = Field("digest", description=f"files: {SPLITS}")
    max_rows: int | None = Field(
        None, gt=0, description="rows to use at most; null: 6,000 that are made, all of files"
    )
    on_bad_data: OnBadData = Field(
        "fail",
        description="reaction to a row that cannot be read or rendered, has an empty answer or more"
        " than sequence_length tokens; skip lists them in the log and in the cache's meta.json",
    )
    on_long: OnLong | None = Field(
        None,
        description="reaction to a row of more than sequence_length + 1 tokens. truncate: the first"
        " ones are used, if any is of an answer; skip; refuse; null: that of on_bad_data",
    )
    selection: Sets = Field(default_factory=dict, description=SETS)

    @model_validator(mode="after")
    def _paths_belong_to_files(self) -> Self:
        if self.source == "files" and not self.paths:
            raise ValueError("source 'files' needs paths, for example paths: answers/*.parquet")
        if self.source != "files" and (self.paths or self.split_by or not self._is_plain()):
            raise ValueError(
                "paths, messages, label and split_by have an effect only with source: files"
            )
        if self.difficulty is not None and self.source not in GENERATED:
            raise ValueError(f"difficulty has an effect only with source: {', '.join(GENERATED)}")
        return self

    def _is_plain(self) -> bool:
        """Whether rows have questions, and not conversations."""
        return True

    @property
    def answer_field(self) -> str:
        """The field that names the column of the answers."""
        return "answer"

    @property
    def answers_of_row(self) -> int:
        """Answers that a row has, one behind the other: they are used together, or not at all."""
        return 1

    def recognised(self, files: list[Path]) -> tuple[Self, str]:
        """The same with names of columns in place of `auto`, and the form of the rows, in words.

        Raises:
            UserError: the columns are in no known form, or in several.
        """
        given, sample, answer = vars(self), sample_of(files), self.answer_field
        try:
            found = find_columns(sample, self.question, given[answer], given.get("messages"))
        except UserError as e:
            raise UserError(f"{files[0]}: {e}") from e
        fields = {answer if name == "answer" else name: column for name, column in found.items()}
        return self.model_copy(update=fields), form_name(sample, found)

    @abstractmethod
    def rows(self, files: list[Path]) -> Iterator[Row]:
        """The rows of files, in order."""

    def files(self) -> list[Path]:
        """The files that match, in a fixed order."""
        return matching_files(self.paths)


class AnswersConfig(RowsConfig):
    """Questions with answers, or conversations; split 90/5/5 into train, selection and test."""

    made_columns: ClassVar[dict[str, str]] = {"question": "question", "answer": "answer"}

    source: Literal["docstrings", "arithmetic", "countdown", "sorting", "format", "files"] = Field(
        "docstrings",
        description="docstrings: what functions, classes and modules of this machine's Python"
        f" standard library do; {GENERATED_HELP}",
    )
    answer: str = Field(
        AUTO,
        description="column of the answers: texts, or lists of messages; auto: it is recognized,"
        f" as one of {', '.join(ANSWERS)}",
    )
    messages: str | None = Field(
        None,
        description="column of conversations, lists of {role, content} or {from, value}, in place"
        " of question and answer; every message of the assistant is an answer, but with weight: 0;"
        f" null, with question and answer auto: also one of {', '.join(MESSAGES)}",
    )

    def _is_plain(self) -> bool:
        return self.messages is None

    def rows(self, files: list[Path]) -> Iterator[Row]:
        """The rows of files, in order."""
        return read_rows(files, Columns(self.question, self.answer, self.messages, self.split_by))
