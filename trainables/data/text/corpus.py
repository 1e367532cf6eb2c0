"""The source of text: a stream of documents, each with the unit by which it is split."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, takewhile
from pathlib import Path
from typing import TextIO

from search_spaces.errors import UserError
from trainables.data.bad_rows import BadRow, BadRows
from trainables.data.corpora.library import LIBRARY, library_files
from trainables.data.readers import TEXT, TableColumns, ending_of, matching_files, read_file
from trainables.data.shared_folder import content_digest, text_digest
from trainables.data.splits import exact_split
from trainables.data.text.config import DataConfig

SPLIT_BY_FILE_FROM = 20
"""With fewer files than this, rows and blocks of text are split instead of files."""
BLOCK_CHARS = 4096
_FORMATS = {".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet", ".arrow": "arrow"}
_TABLES = frozenset((".json", ".csv", ".tsv"))
_MARKS = {
    b"\x1f\x8b": "gzip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
    b"%PDF": "PDF",
}
"""First bytes of files that are often taken for text."""


@dataclass(frozen=True)
class TextDocument:
    """A text, and the number of its file; all documents of a unit are in the same split."""

    unit: str
    text: str
    source: int


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
        return text_digest(
            *(f"{content_digest(f, self.cache)}{self._form(f)}\n" for f in self.files)
        )

    def _form(self, file: Path) -> str:
        """Of JSON lines that are read as plain text: with another ending they would be rows."""
        with open(file, "rb") as content:
            plain = self.data.format == "auto" and _kind(file, self.data) == "text"
            return " text" if plain and content.read(1) == b"{" else ""

    def documents(self, bad: BadRows | None = None) -> Iterator[TextDocument]:
        """Every document up to the limit of bytes, always in the same order.

        Args:
            bad: remembers the unreadable parts, with `on_bad_data: skip`.

        Raises:
            UserError: a part is unreadable, with `on_bad_data: fail`.
        """
        bad = bad or BadRows(self.data.on_bad_data)
        left = self.data.limit
        for source, path in enumerate(self.files):
            unit = content_digest(path, self.cache) if self.by_file else None
            if self.data.splits == "file_names":
                unit = exact_split(path).value
            for text in bad.leave_out(texts_in(path, self.data, whole=self.by_file)):
                if left is not None:
                    left -= len(text.encode())
                    if left < 0:
                        return
                yield TextDocument(unit or text_digest(text), text, source)


def open_corpus(data: DataConfig, cache: Path) -> Corpus:
    """The corpus of a configuration; digests of large files are cached in `cache`.

    Raises:
        UserError: no file matches.
    """
    if data.source == "stdlib":
        paths = library_files("encodings")  # they are tables
        files = [LIBRARY / path for path in paths]
        if (limit := data.limit) is not None:
            sizes = accumulate(file.stat().st_size for file in files)
            whole = takewhile(lambda each: each[1] <= limit, zip(files, sizes, strict=True))
            files = [file for file, _ in whole]
    elif not (files := matching_files(data.paths)):
        raise UserError(f"data.paths: no file matches {', '.join(data.paths)} (from {Path.cwd()})")
    return Corpus(tuple(files), data, cache)


def texts_in(path: Path, data: DataConfig, *, whole: bool) -> Iterator[str | BadRow]:
    """The texts of a file; a plain text is one, or blocks of about `BLOCK_CHARS` characters.

    Raises:
        UserError: a Parquet file lacks the column.
    """
    ending, field = ending_of(path).lower(), data.text_field
    if data.format == "auto" and ending in _TABLES:
        raise UserError(
            f"{path}: data.format: auto does not read {ending}; write .jsonl or .parquet, or train"
            " on the characters of the file with data.format: text"
        )
    if (kind := _kind(path, data)) == "text":
        yield from _plain(path, whole=whole)
        return
    for row in read_file(path, TableColumns({field: TEXT}, only=True), f".{kind}"):
        if isinstance(row, BadRow):
            yield row
        elif isinstance(text := row[1].get(field), str):
            yield text
        elif kind == "jsonl":  # a null in a table is no text
            yield BadRow(f"{row[0]}: no text under '{field}' (set data.text_field)")


def _kind(path: Path, data: DataConfig) -> str:
    known = _FORMATS.get(ending_of(path).lower(), "text")
    return known if data.format == "auto" else data.format


def _plain(path: Path, *, whole: bool) -> Iterator[str | BadRow]:
    """A text in UTF-8, up to the first part that is none."""
    with open(path, "rb") as file:
        head = file.read(4)
    for mark, name in _MARKS.items():
        if head.startswith(mark):
            yield BadRow(f"{path}: is {name}, not plain text in UTF-8")
            return
    with open(path, encoding="utf-8-sig") as lines:
        try:
            for block in [lines.read()] if whole else _blocks(lines):
                if "\0" in block:
                    raise ValueError("it contains NUL")
                yield block
        except ValueError as e:
            why = f"byte {e.object[e.start]:#x}" if isinstance(e, UnicodeDecodeError) else str(e)
            yield BadRow(f"{path}: is not plain text in UTF-8 ({why})")


def _blocks(lines: TextIO) -> Iterator[str]:
    """Blocks of about `BLOCK_CHARS` characters that end with a whole line."""
    while block := "".join(lines.readlines(BLOCK_CHARS)):
        yield block
