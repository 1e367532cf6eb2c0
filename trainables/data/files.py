"""Which files a data stage reads and writes; no library that is slow to import."""

from __future__ import annotations

import glob
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from search_spaces.errors import UserError, suggest
from search_spaces.nested import KeyPath
from search_spaces.pipeline.stages import DataStage
from trainables.base import Split
from trainables.common.split_names import split_of
from trainables.data import hub

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
    patterns = [_pattern(p, directory) for p in paths]
    found = {Path(f) for p in patterns for f in glob.glob(p, recursive=True)}
    order = {Split.TEST: 0, Split.SELECTION: 1}
    files = sorted(f for f in found if f.is_file())
    return sorted(files, key=lambda file: order.get(split_of(file) or Split.TRAIN, 2))


def _pattern(path: str, directory: Path) -> str:
    if path.startswith(hub.PREFIX):
        folder, files = hub.data_set(path)
        return str(folder / files)
    return str(directory / Path(path).expanduser())


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
        has = _columns(file)
        if has is not None and stage.text_field not in has:
            hint = suggest(stage.text_field, has)
            yield ("text_field",), f"{file}: no column '{stage.text_field}'{hint}"
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
    elif (problem := hub.tokenizer_problem(stage.tokenizer)) is not None:
        yield ("tokenizer",), problem


def load_filter(name: str, directory: Path) -> object:
    """The function of a `script.py:function`, in the directory of the pipeline.

    Raises:
        UserError: there is none.
    """
    from trainables.user_code import loader

    script, _, function = name.rpartition(":")
    return loader.load(f"{(directory / script).resolve()}:{function}")


def _columns(file: Path) -> list[str] | None:
    """The columns of a file, by its first row; None if it has none."""
    if file.suffix == ".parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            return list(pq.read_schema(file).names)
        except (pa.ArrowException, OSError):
            return None  # the stage names it
    if file.suffix not in (".jsonl", ".ndjson"):
        return None
    with open(file, "rb") as lines:
        first = next((line for line in lines if line.strip()), None)
    try:
        row = json.loads(first) if first else None
    except ValueError:
        return None
    return list(row) if isinstance(row, dict) else None
