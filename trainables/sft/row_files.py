"""Reads the rows of files: JSON lines, JSON, CSV, Parquet and Arrow.

It imports no pyarrow before it reads, because `tune plan` checks the rows with it.
"""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import IO, Any

from search_spaces.errors import UserError, suggest
from search_spaces.files import parse_text_json
from trainables.common.parquet import is_text

Placed = tuple[str, dict[str, Any] | str]
"""Where a row is, and the row, or why it cannot be read."""


def read_file(path: Path, required: Collection[str], text: Collection[str]) -> Iterator[Placed]:
    """The rows of a file, by its ending; also with .gz behind it.

    Args:
        path: of the file.
        required: columns that must be there.
        text: of these, the columns of texts or of messages.

    Raises:
        UserError: the ending is not known, or the file lacks a column or has another type there.
    """
    ending = Path(path.stem).suffix if path.suffix == ".gz" else path.suffix
    if ending == ".arrow" or (ending == ".parquet" and path.suffix != ".gz"):
        yield from _columnar(path, required, text)
    elif ending in _READERS:
        try:
            yield from _READERS[ending](path)
        except (OSError, EOFError, zlib.error, UnicodeDecodeError, csv.Error) as e:
            yield str(path), f"cannot be read further ({_short(e)})"
    else:
        known = ", ".join((*_READERS, ".parquet"))
        raise UserError(f"{path}: rows are read from {known} (all but the last also with .gz)")


def folder_files(folder: Path) -> list[Path]:
    """The files of a data set that `datasets` saved with `save_to_disk`; none of other folders."""
    return sorted(folder.glob("*.arrow")) if (folder / "state.json").is_file() else []


def _open(path: Path) -> IO[bytes]:
    opener: Any = gzip.open if path.suffix == ".gz" else open
    found: IO[bytes] = opener(path, "rb")
    return found


def _lines(path: Path) -> Iterator[Placed]:
    with _open(path) as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                yield f"{path}:{number}", _row(line)


def _row(line: bytes) -> dict[str, Any] | str:
    try:
        row = parse_text_json(line)
    except ValueError as e:
        return f"not a JSON object ({e})"
    return row if isinstance(row, dict) else "not a JSON object"


def _json(path: Path) -> Iterator[Placed]:
    """A list of rows; many files of JSON lines have this ending, too."""
    with _open(path) as file:
        content = file.read()
    try:
        rows = parse_text_json(content)
    except ValueError:
        yield from _lines(path)
        return
    if isinstance(rows, dict) and b"\n" not in content.strip():
        rows = [rows]
    if not isinstance(rows, list):
        yield str(path), "no list of rows"
        return
    for number, row in enumerate(rows, 1):
        yield f"{path}: row {number}", row if isinstance(row, dict) else "not a JSON object"


def _csv(path: Path) -> Iterator[Placed]:
    with _open(path) as file:
        lines = io.TextIOWrapper(file, encoding="utf-8-sig", newline="")
        rows = csv.DictReader(lines, delimiter="\t" if ".tsv" in path.suffixes else ",")
        for row in rows:
            whole = None not in row and None not in row.values()
            yield (
                f"{path}:{rows.line_num}",
                row if whole else "another number of cells than the first line",
            )


_READERS: dict[str, Callable[[Path], Iterator[Placed]]] = {
    ".jsonl": _lines,
    ".ndjson": _lines,
    ".json": _json,
    ".csv": _csv,
    ".tsv": _csv,
}


def _columnar(path: Path, required: Collection[str], text: Collection[str]) -> Iterator[Placed]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        if path.suffix == ".arrow":
            table: Any = pa.ipc.open_stream(pa.memory_map(str(path)))
            _check_schema(path, table.schema, required, text)
            yield from _batches(path, table, 0)
            return
        table = pq.ParquetFile(path, page_checksum_verification=True)
    except (pa.ArrowException, OSError) as e:
        kind = "an Arrow stream" if path.suffix == ".arrow" else "a Parquet file"
        yield str(path), f"not {kind} ({_short(e)})"
        return
    with table:
        _check_schema(path, table.schema_arrow, required, text)
        number = 0
        for group in range(table.num_row_groups):
            try:
                for place in _batches(path, table.iter_batches(row_groups=[group]), number):
                    number += 1
                    yield place
            except (pa.ArrowException, OSError, ValueError) as e:
                yield f"{path}: row group {group}", f"cannot be read ({_short(e)})"


def _batches(path: Path, batches: Iterable[Any], number: int) -> Iterator[Placed]:
    for batch in batches:
        for row in batch.to_pylist():
            number += 1
            yield f"{path}: row {number}", _without_null(row)


def _without_null(value: Any) -> Any:
    """A row without the keys that only other rows have: all have those of the column's type."""
    if isinstance(value, dict):
        return {k: _without_null(v) for k, v in value.items() if v is not None}
    return [_without_null(v) for v in value] if isinstance(value, list) else value


def _check_schema(
    path: Path, schema: Any, required: Collection[str], text: Collection[str]
) -> None:
    from pyarrow import types

    for name in required:
        if name not in schema.names:
            have, hint = ", ".join(schema.names), suggest(name, schema.names)
            raise UserError(f"{path}: no column '{name}'{hint} (set it under data; it has {have})")
        kind = schema.field(name).type
        is_list = types.is_list(kind) or types.is_large_list(kind)
        if name in text and not (is_text(kind) or is_list):
            raise UserError(f"{path}: column '{name}' must be text, got {kind}")


def _short(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
