"""The source of text: a stream of documents, each with the unit by which it is split."""

from __future__ import annotations

import glob
import hashlib
import os
import sysconfig
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from results.storage.atomic import write_atomic
from search_spaces.errors import UserError
from search_spaces.files import parse_text_json
from trainables.base import Split
from trainables.causal_lm.data_config import DataConfig
from trainables.common.parquet import is_text

SKIPPED_FOLDERS = frozenset(
    # tests and installed packages are not the library; encodings are tables
    ("site-packages", "dist-packages", "test", "tests", "idlelib", "idle_test", "encodings")
)
SPLIT_BY_FILE_FROM = 20
"""With fewer files than this, rows and blocks of text are split instead of files."""
BLOCK_CHARS = 4096
LARGE_FILE = 8 << 20
_TABLES = frozenset((".json", ".csv", ".tsv"))
_MARKS = {b"\x1f\x8b": "gzip", b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16", b"%PDF": "PDF"}
"""First bytes of files that are often taken for text."""
SHARE = 0.05
"""Fraction of the units in the selection split, and in the test split."""


@dataclass(frozen=True)
class TextDocument:
    """A text, and the number of its file; all documents of a unit are in the same split."""

    unit: str
    text: str
    source: int


@dataclass(frozen=True)
class Unreadable:
    """A part of the data that cannot be read: where it is, and why."""

    problem: str


@dataclass(frozen=True)
class Corpus:
    """Files in a fixed order, and the settings for reading them."""

    files: tuple[Path, ...]
    data: DataConfig
    cache: Path

    @property
    def by_file(self) -> bool:
        """Whether whole files are the units of the split, or rows and blocks of text."""
        return len(self.files) >= SPLIT_BY_FILE_FROM

    def fingerprint(self) -> str:
        """SHA-256 over the content of every file, in order, without their names."""
        return _digest(f"{content_digest(f, self.cache)}\n" for f in self.files)

    def documents(self, warn: Callable[[str], None] = lambda line: None) -> Iterator[TextDocument]:
        """Every document up to the limit of bytes, always in the same order.

        Args:
            warn: called with one line for each unreadable part, with `on_bad_data: skip`.

        Raises:
            UserError: a part is unreadable, with `on_bad_data: fail`.
        """
        left = self.data.limit
        for source, path in enumerate(self.files):
            unit = content_digest(path, self.cache) if self.by_file else None
            if self.data.splits == "file_names":
                unit = split_named(path)
            for text in texts_in(path, self.data, whole=self.by_file):
                if isinstance(text, Unreadable):
                    self._handle(text, warn)
                    continue
                if left is not None:
                    left -= len(text.encode())
                    if left < 0:
                        return
                yield TextDocument(unit or _digest([text]), text, source)

    def _handle(self, part: Unreadable, warn: Callable[[str], None]) -> None:
        if self.data.on_bad_data == "fail":
            repair = "repair it, or skip such parts with data.on_bad_data: skip"
            raise UserError(f"{part.problem}; {repair}")
        warn(part.problem)


def open_corpus(data: DataConfig, cache: Path) -> Corpus:
    """The corpus of a configuration; digests of large files are cached in `cache`.

    Raises:
        UserError: no file matches.
    """
    if data.source == "stdlib":
        return Corpus(
            tuple(_stdlib(Path(sysconfig.get_paths()["stdlib"]), data.limit)), data, cache
        )
    found = {f for p in data.paths for f in glob.glob(str(Path(p).expanduser()), recursive=True)}
    files = sorted(Path(f) for f in found if Path(f).is_file())
    if not files:
        raise UserError(f"data.paths: no file matches {', '.join(data.paths)} (from {Path.cwd()})")
    return Corpus(tuple(files), data, cache)


def assign_splits(units: Iterable[str]) -> dict[str, Split]:
    """Assign each unit to a split by its digest alone, unless that would leave a split empty.

    A unit that is the name of a split is that split.

    Raises:
        UserError: there are fewer than three different units.
    """
    ordered = sorted(set(units))
    named = {split.value: split for split in Split}
    if named.keys() >= set(ordered):
        return {unit: named[unit] for unit in ordered}
    if len(ordered) < 3:
        raise UserError(f"data: {len(ordered)} different documents cannot be split in three")
    splits = {unit: split_by_digest(unit) for unit in ordered}
    for needed in Split:
        if needed not in splits.values():
            assigned = list(splits.values())
            donor = max(Split, key=assigned.count)
            splits[next(u for u in ordered if splits[u] is donor)] = needed
    return splits


def split_named(path: Path) -> str:
    """The split that a file's name is: `train.jsonl`, `selection.jsonl` or `test.jsonl`.

    Raises:
        UserError: it is another name.
    """
    if path.stem not in list(Split):
        names = ", ".join(Split)
        raise UserError(f"{path}: with data.splits: file_names, files are named {names}")
    return path.stem


def content_digest(path: Path, cache: Path) -> str:
    """SHA-256 of a file. The cache keeps that of a large one, by its name, size and time."""
    stat = path.stat()
    key = _digest([f"{path.resolve()}\n{stat.st_size}\n{stat.st_mtime_ns}"])
    known = cache / "digests" / key
    if known.exists():
        return known.read_text()
    with open(path, "rb") as f:
        digest = hashlib.file_digest(f, "sha256").hexdigest()
    if stat.st_size >= LARGE_FILE:
        write_atomic(known, digest.encode())
    return digest


def split_by_digest(unit: str) -> Split:
    """The split of a SHA-256 in hex: 90 % train, 5 % selection, 5 % test."""
    place = int(unit[:13], 16) / 16**13
    if place < SHARE:
        return Split.TEST
    return Split.SELECTION if place < 2 * SHARE else Split.TRAIN


def _digest(parts: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part.encode())
    return digest.hexdigest()


def _stdlib(root: Path, limit: int | None) -> Iterator[Path]:
    """Source files in an order that mixes the packages, up to the limit of bytes."""
    found: list[Path] = []
    for folder, folders, files in os.walk(root):
        folders[:] = set(folders) - SKIPPED_FOLDERS  # before walking them: they can be huge
        found += (Path(folder, f).relative_to(root) for f in files if f.endswith(".py"))
    total = 0
    for path in sorted(found, key=lambda p: _digest([p.as_posix()])):
        total += (root / path).stat().st_size
        if limit is not None and total > limit:
            return
        yield root / path


def texts_in(path: Path, data: DataConfig, *, whole: bool) -> Iterator[str | Unreadable]:
    """The texts of a file; a plain text is one, or blocks of about `BLOCK_CHARS` characters.

    Raises:
        UserError: a Parquet file lacks the column.
    """
    kind = _format(path) if data.format == "auto" else data.format
    if kind == "jsonl":
        yield from _jsonl(path, data.text_field)
    elif kind == "parquet":
        yield from _parquet(path, data.text_field)
    else:
        yield from _plain(path, whole=whole)


def _format(path: Path) -> str:
    if (ending := path.suffix.lower()) in _TABLES:
        raise UserError(
            f"{path}: data.format: auto does not read {ending}; write .jsonl or .parquet, or train"
            " on the characters of the file with data.format: text"
        )
    known = {".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}
    return known.get(ending, "text")


def _jsonl(path: Path, field: str) -> Iterator[str | Unreadable]:
    for place, row in json_lines(path):
        if isinstance(row, ValueError):
            yield Unreadable(f"{place}: not a JSON object ({row})")
        elif isinstance(row, dict) and isinstance(row.get(field), str):
            yield row[field]
        else:
            yield Unreadable(f"{place}: no text under '{field}' (set data.text_field)")


def json_lines(path: Path) -> Iterator[tuple[str, Any]]:
    """Place and value of each line that is not blank; the error of one that is no JSON in UTF-8."""
    with open(path, "rb") as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                try:
                    row = parse_text_json(line)
                except ValueError as e:
                    row = e
                yield f"{path}:{number}", row


def _parquet(path: Path, field: str) -> Iterator[str | Unreadable]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.ParquetFile(path, page_checksum_verification=True)
    except (pa.ArrowException, OSError) as e:
        yield Unreadable(f"{path}: not a Parquet file ({_short(e)})")
        return
    with table:
        names = table.schema_arrow.names
        if field not in names:
            have = ", ".join(names)
            raise UserError(f"{path}: no column '{field}' (set data.text_field; it has {have})")
        if not is_text(kind := table.schema_arrow.field(field).type):
            raise UserError(f"{path}: column '{field}' must be text, got {kind}")
        for group in range(table.num_row_groups):
            try:
                for batch in table.iter_batches(row_groups=[group], columns=[field]):
                    yield from (t for t in batch.column(0).to_pylist() if t is not None)
            except (pa.ArrowException, OSError, ValueError) as e:
                yield Unreadable(f"{path}: row group {group}: cannot be read ({_short(e)})")


def _short(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def _plain(path: Path, *, whole: bool) -> Iterator[str | Unreadable]:
    """A text in UTF-8, up to the first part that is none."""
    with open(path, "rb") as file:
        head = file.read(4)
    for mark, name in _MARKS.items():
        if head.startswith(mark):
            yield Unreadable(f"{path}: is {name}, not plain text in UTF-8")
            return
    with open(path, encoding="utf-8-sig") as lines:
        try:
            for block in [lines.read()] if whole else _blocks(lines):
                if "\0" in block:
                    raise ValueError("it contains NUL")
                yield block
        except ValueError as e:
            why = f"byte {e.object[e.start]:#x}" if isinstance(e, UnicodeDecodeError) else str(e)
            yield Unreadable(f"{path}: is not plain text in UTF-8 ({why})")


def _blocks(lines: TextIO) -> Iterator[str]:
    """Blocks of about `BLOCK_CHARS` characters that end with a whole line."""
    while block := "".join(lines.readlines(BLOCK_CHARS)):
        yield block
