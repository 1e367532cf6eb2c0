"""Which files a data stage reads and writes; no library that is slow to import."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from search_spaces.errors import UserError
from search_spaces.nested import KeyPath
from search_spaces.pipeline.stages import DataStage
from trainables.base import Split
from trainables.data.bad_rows import BadRow
from trainables.data.hub import hub_problem
from trainables.data.readers import (
    TEXT,
    TableColumns,
    matching_files,
    missing_column,
    read_file,
    table_problems,
)
from trainables.data.splits import split_of

_OUTPUTS: dict[str, dict[str, tuple[str, ...]]] = {
    "stories": {"text": ("text",), "instructions": ("question", "answer", "words")},
    "arithmetic": {"text": ("text",), "questions": ("question", "answer", "rejected")},
    "files": {"text": ("text",)},
}
TOKENIZER = "tokenizer"
"""Folder of the tokenizer."""


def outputs(stage: DataStage) -> dict[str, tuple[str, ...]]:
    """The folders that the stage writes, and the columns of the files in each."""
    texts = _OUTPUTS[stage.source]
    return texts if stage.tokenizer is None else {**texts, TOKENIZER: ()}


def input_files(paths: Sequence[str], directory: Path) -> list[Path]:
    """The files of globs, in a fixed order: those to be held out first."""
    order = {Split.TEST: 0, Split.SELECTION: 1}
    found = matching_files(paths, directory)
    return sorted(found, key=lambda file: (order.get(split_of(file) or Split.TRAIN, 2), file))


def tokenizer_source(name: str, directory: Path) -> str:
    """The folder of a tokenizer, absolute; or its name on the hub."""
    folder = directory / Path(name).expanduser()
    return str(folder) if folder.is_dir() else name


def data_problem(stage: DataStage, directory: Path) -> Iterator[tuple[KeyPath, str]]:
    """Globs without a file, files without the column of text, and a filter that is not there."""
    for index, pattern in enumerate(stage.paths):
        try:
            if not input_files([pattern], directory):
                yield ("paths", index), f"no file matches {pattern} (from {directory})"
        except UserError as e:
            yield ("paths", index), e.problems[0]
            return
    yield from _tokenizer_problem(stage, directory)
    for file in input_files(stage.paths, directory):
        if (problem := _column_problem(file, stage.text_field)) is not None:
            yield ("text_field",), problem
            return
    if stage.keep_if is not None:
        try:
            load_filter(stage.keep_if, directory)
        except UserError as e:
            yield ("keep_if",), e.problems[0]


def _tokenizer_problem(stage: DataStage, directory: Path) -> Iterator[tuple[KeyPath, str]]:
    if not isinstance(stage.tokenizer, str):
        return
    source = Path(tokenizer_source(stage.tokenizer, directory))
    if source.is_dir():
        if not (source / "tokenizer.json").is_file():
            yield ("tokenizer",), f"{source}: has no tokenizer.json"
    elif (problem := hub_problem(stage.tokenizer, "tokenizer.json")) is not None:
        yield ("tokenizer",), problem


def load_filter(name: str, directory: Path) -> object:
    """The function of a `script.py:function`, in the directory of the pipeline.

    Raises:
        UserError: there is none.
    """
    from trainables.user_code import loader

    script, _, function = name.rpartition(":")
    return loader.load(f"{(directory / script).resolve()}:{function}")


def _column_problem(file: Path, name: str) -> str | None:
    """Why a file has no texts, by its schema or first row; None: it has, or the stage names it."""
    if file.suffix == ".parquet":
        return next(iter(table_problems(file, TableColumns({name: TEXT}))), None)
    if file.suffix not in (".jsonl", ".ndjson"):
        return None
    first = next(read_file(file, TableColumns({})), None)
    if first is None or isinstance(first, BadRow) or name in first[1]:
        return None
    return missing_column(file, name, first[1])
