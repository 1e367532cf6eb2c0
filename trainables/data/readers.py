"""Reads the rows of files: JSON lines, JSON, CSV, Parquet and Arrow, a line of `READERS` each.

It imports no pyarrow before it reads, because `tune plan` checks rows with it.
"""

from __future__ import annotations

import csv
import glob
import gzip
import io
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any

from search_spaces.errors import UserError, suggest
from search_spaces.files import parse_text_json
from trainables.data.bad_rows import BadRow, first_line
from trainables.data.hub import HUB, HUB_FORM, data_set

PlacedRow = tuple[str, dict[str, Any]]
"""File and line (or number) of a row, from 1, and its values."""


@dataclass(frozen=True)
class ColumnType:
    """What a column of a table may hold: in words, and whether an Arrow type is that."""

    words: str
    accepts: Callable[[Any], bool]


@dataclass(frozen=True)
class TableColumns:
    """The columns that tables must have.

    Attributes:
        types: by the names of the columns.
        only: whether others are not read; else a row of a table has no keys with null, as all
            rows have those of the column's type.
        at_once: rows of a table in memory.
    """

    types: Mapping[str, ColumnType]
    only: bool = False
    at_once: int = 65_536


def is_text(kind: Any) -> bool:
    """Whether a column of an Arrow type holds texts."""
    from pyarrow import types

    if types.is_dictionary(kind):
        return is_text(kind.value_type)
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def is_list(kind: Any) -> bool:
    """Whether a column of an Arrow type holds lists."""
    from pyarrow import types

    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


ANYTHING = ColumnType("anything", lambda kind: True)
TEXT = ColumnType("text", is_text)
MESSAGES = ColumnType("text or messages", lambda kind: is_text(kind) or is_list(kind))


def matching_files(patterns: Iterable[str], directory: Path = Path()) -> list[Path]:
    """The files that match globs, sorted; of folders those of datasets' `save_to_disk`; each once.

    Raises:
        UserError: those of a data set of the hub cannot be had.
    """
    matches: set[Path] = set()
    for given in patterns:
        folder, pattern = data_set(given) if given.startswith(HUB) else (directory, given)
        found = glob.iglob(str(folder / Path(pattern).expanduser()), recursive=True)
        matches.update(map(Path, found))
    saved = (path.glob("*.arrow") for path in matches if (path / "state.json").is_file())
    files = sorted({path for path in matches if path.is_file()}.union(*saved), reverse=True)
    return sorted({os.path.realpath(path): path for path in files}.values())  # of links the first


def path_problem(pattern: str) -> str | None:
    """Why a glob has no files; None: it has."""
    try:
        found = next(glob.iglob(str(Path(pattern).expanduser()), recursive=True), "")
        if (found and not Path(found).is_dir()) or matching_files([pattern]):
            return None
    except UserError as e:
        return e.problems[0]
    hint = ""
    if (Path(found) / "dataset_dict.json").is_file():
        hint = f": it is a folder of splits; write {found}/train, or another of them"
    elif found:
        hint = f": it is a folder; write {found}/*, for example"
    elif not Path(pattern).suffix and not Path(pattern).parent.is_dir():
        hint = f"; a data set of the hub is {HUB_FORM}"
    return f"no file matches {pattern}{hint}"


def ending_of(path: Path) -> str:
    """The ending of a file's name, before that of a compression."""
    return Path(path.stem).suffix if path.suffix in _COMPRESSIONS else path.suffix


def read_file(
    path: Path, columns: TableColumns, ending: str | None = None
) -> Iterator[PlacedRow | BadRow]:
    """The rows of a file, by its ending; also with .gz or .zst behind it.

    Args:
        path: of the file.
        columns: that tables must have; rows of other files are not checked.
        ending: in place of that of the file.

    Raises:
        UserError: the ending is not known, or a table lacks a column or has another type there.
    """
    ending = ending or ending_of(path)
    if ending not in READERS or (path.suffix in _COMPRESSIONS and READERS[ending] is _table):
        known, packed = ", ".join(READERS), " or ".join(_COMPRESSIONS)
        raise UserError(f"{path}: rows are read from {known} (but the last two also with {packed})")
    try:
        yield from READERS[ending](path, columns)
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as e:
        yield BadRow(f"{path}: cannot be read further ({first_line(e)})")


def table_problems(path: Path, columns: TableColumns) -> list[str]:
    """What a Parquet file lacks, as far as its schema shows, a line each."""
    schema = _schema(path)
    if isinstance(schema, BadRow):
        return [schema.problem]
    return list(_column_problems(path, schema, columns))


def missing_column(path: Path, name: str, names: Iterable[str]) -> str:
    """The problem of a file that lacks a column."""
    return f"{path}: no column '{name}'{suggest(name, names)}; set its name beside the path"


def _open(path: Path) -> IO[bytes]:
    opener = _COMPRESSIONS.get(path.suffix, partial(open, mode="rb"))
    file: IO[bytes] = opener(path)
    return file


def _open_zstd(path: Path) -> Any:
    import pyarrow as pa

    return io.BufferedReader(pa.CompressedInputStream(pa.OSFile(str(path)), "zstd"))


_COMPRESSIONS: dict[str, Callable[[Path], Any]] = {".gz": gzip.open, ".zst": _open_zstd}


def _lines(path: Path, _: TableColumns) -> Iterator[PlacedRow | BadRow]:
    file = str(path)
    with _open(path) as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                yield _object(f"{file}:{number}", line)


def _object(place: str, content: Any) -> PlacedRow | BadRow:
    """A row, from its JSON or value."""
    try:
        row = parse_text_json(content) if isinstance(content, bytes) else content
    except ValueError as e:
        return BadRow(f"{place}: not a JSON object ({e})")
    return (place, row) if isinstance(row, dict) else BadRow(f"{place}: not a JSON object")


def _json(path: Path, columns: TableColumns) -> Iterator[PlacedRow | BadRow]:
    """A list of rows; many files of JSON lines have this ending, too."""
    with _open(path) as file:
        content = file.read()
    try:
        rows = parse_text_json(content)
    except ValueError:
        yield from _lines(path, columns)
        return
    if isinstance(rows, dict) and b"\n" not in content.strip():
        rows = [rows]
    if isinstance(rows, list):
        yield from (_object(f"{path}: row {n}", row) for n, row in enumerate(rows, 1))
    else:
        yield BadRow(f"{path}: no list of rows")


def _csv(path: Path, _: TableColumns) -> Iterator[PlacedRow | BadRow]:
    with _open(path) as file:
        lines = io.TextIOWrapper(file, encoding="utf-8-sig", newline="")
        csv.field_size_limit(2**31 - 1)  # a cell may be a book
        mark = "\t" if ".tsv" in path.suffixes else ","
        rows = csv.DictReader(lines, delimiter=mark, strict=True)
        try:
            if len(names := list(rows.fieldnames or ())) > len({*names}):
                raise UserError(f"{path}: several columns have one name: {', '.join(names)}")
            for row in rows:
                place = f"{path}:{rows.line_num}"
                if None in row or None in row.values():
                    yield BadRow(f"{place}: another number of cells than the first line")
                else:
                    yield place, row
        except csv.Error as e:
            yield BadRow(f"{path}:{rows.line_num + 1}: cannot be read further ({e})")


def _table(path: Path, columns: TableColumns) -> Iterator[PlacedRow | BadRow]:
    import pyarrow as pa

    schema = _schema(path)
    if isinstance(schema, BadRow):
        yield schema
        return
    for problem in _column_problems(path, schema, columns):
        raise UserError(problem)
    before = 0
    for group, count, batches in _row_groups(path, columns):
        number = before
        try:
            for row in (row for batch in batches for row in batch.to_pylist()):
                number += 1
                yield f"{path}: row {number}", row if columns.only else _without_null(row)
        except (pa.ArrowException, OSError, ValueError) as e:
            yield BadRow(f"{path}: {group}cannot be read ({first_line(e)})")
        before += count


def _row_groups(path: Path, columns: TableColumns) -> Iterator[tuple[str, int, Iterable[Any]]]:
    """Name, number of rows and batches of each part that is damaged alone."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if path.suffix == ".arrow":
        yield "", 0, pa.ipc.open_stream(pa.memory_map(str(path)))
        return
    names = list(columns.types) if columns.only else None
    with pq.ParquetFile(path, page_checksum_verification=True) as table:
        for group in range(table.num_row_groups):
            batches = table.iter_batches(columns.at_once, row_groups=[group], columns=names)
            yield f"row group {group}: ", table.metadata.row_group(group).num_rows, batches


def _schema(path: Path) -> Any:
    """The schema of a table, or a `BadRow`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        if path.suffix == ".arrow":
            return pa.ipc.open_stream(pa.memory_map(str(path))).schema
        return pq.read_schema(path)
    except (pa.ArrowException, OSError) as e:
        kind = "an Arrow stream" if path.suffix == ".arrow" else "a Parquet file"
        return BadRow(f"{path}: not {kind} ({first_line(e)})")


def _column_problems(path: Path, schema: Any, columns: TableColumns) -> Iterator[str]:
    for name, kind in columns.types.items():
        if name not in schema.names:
            yield missing_column(path, name, schema.names)
        elif not kind.accepts(has := schema.field(name).type):
            yield f"{path}: column '{name}' must be {kind.words}, got {has}"


def _without_null(value: Any) -> Any:
    """A row without the keys that only other rows have: all have those of the column's type."""
    if isinstance(value, dict):
        return {k: _without_null(v) for k, v in value.items() if v is not None}
    return [_without_null(v) for v in value] if isinstance(value, list) else value


READERS: dict[str, Callable[[Path, TableColumns], Iterator[PlacedRow | BadRow]]] = {
    ".jsonl": _lines,
    ".ndjson": _lines,
    ".json": _json,
    ".csv": _csv,
    ".tsv": _csv,
    ".parquet": _table,
    ".arrow": _table,
}
"""Ending of a file → what yields its rows."""
