"""One way to read rows: the same of every format, and what cannot be read is named."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from search_spaces.errors import UserError
from trainables.data.bad_rows import BadRow
from trainables.data.readers import MESSAGES, TEXT, TableColumns, read_file, table_problems

ROWS = [{"question": f"q{i}", "answer": "a, b"} for i in range(80)]
LINES = "".join(json.dumps(row) + "\n" for row in ROWS).encode()
COLUMNS = TableColumns({"question": MESSAGES, "answer": TEXT})


def read(file: Path, columns: TableColumns = COLUMNS) -> list[Any]:
    """Rows, and problems, of a file."""
    found = read_file(file, columns)
    return [row.problem if isinstance(row, BadRow) else row[1] for row in found]


def write_parquet(file: Path) -> None:
    pq.write_table(pa.Table.from_pylist(ROWS), file)


def write_arrow(file: Path) -> None:
    table = pa.Table.from_pylist(ROWS)
    with pa.ipc.new_stream(file, table.schema) as stream:
        stream.write_table(table, max_chunksize=30)


def write_csv(file: Path) -> None:
    mark = "\t" if file.suffix == ".tsv" else ","
    rows = [f'q{i}{mark}"a, b"' for i in range(80)]
    file.write_text("\n".join([f"question{mark}answer", *rows]))


FILES = {
    "lines.jsonl": lambda file: file.write_bytes(LINES),
    "lines.json": lambda file: file.write_bytes(LINES),
    "list.json": lambda file: file.write_text(json.dumps(ROWS, indent=1)),
    "packed.jsonl.gz": lambda file: file.write_bytes(gzip.compress(LINES)),
    "table.csv": write_csv,
    "table.tsv": write_csv,
    "table.parquet": write_parquet,
    "table.arrow": write_arrow,
}


@pytest.mark.parametrize("name", FILES)
def test_every_format_has_the_same_rows(name: str, tmp_path: Path) -> None:
    FILES[name](tmp_path / name)
    assert read(tmp_path / name) == ROWS


BAD = {
    "a.jsonl": (b'{"question": "q"}\n{\n["x"]\n{"a": "\xff\xfe"}', ["a.jsonl:2", ":3", ":4"]),
    "a.csv": (b"question,answer\nq,a\nq\n", ["a.csv:3"]),
    "a.jsonl.gz": (gzip.compress(LINES)[:-12], ["further"]),
    "a.parquet": (b"PAR1 no", ["not a Parquet file"]),
    "a.arrow": (b"ARROW no", ["not an Arrow stream"]),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_read_is_named(name: str, tmp_path: Path) -> None:
    content, places = BAD[name]
    (tmp_path / name).write_bytes(content)
    problems = [row for row in read(tmp_path / name) if isinstance(row, str)]
    assert len(problems) == len(places)
    for problem, place in zip(problems, places, strict=True):
        assert place in problem


def test_only_a_damaged_row_group_is_lost(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    table = pa.Table.from_pylist(ROWS)
    options = {"use_dictionary": False, "compression": "none", "write_page_checksum": True}
    pq.write_table(table, file, row_group_size=20, **options)
    file.write_bytes(file.read_bytes().replace(b"q45", b"XXX", 1))
    rows = read(file)
    assert [row for row in rows if not isinstance(row, str)] == ROWS[:40] + ROWS[60:]
    assert [f"{file}: row group 2: cannot be read" in row for row in rows[40:41]] == [True]
    *_, (place, _) = read_file(file, COLUMNS)  # type: ignore[misc]
    assert place == f"{file}: row 80"


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        ({"question": ["q"], "answr": ["a"]}, "no column 'answer' (did you mean 'answr'?)"),
        ({"question": ["q"], "answer": [3]}, "column 'answer' must be text, got int64"),
        ({"question": ["q"], "answer": [b"a"]}, "column 'answer' must be text, got binary"),
    ],
)
def test_columns_of_tables_are_checked(
    columns: dict[str, list[Any]], problem: str, tmp_path: Path
) -> None:
    file = tmp_path / "a.parquet"
    pq.write_table(pa.table(columns), file)
    (found,) = table_problems(file, COLUMNS)
    assert found.startswith(f"{file}: {problem}")
    with pytest.raises(UserError, match="column 'answer'"):
        read(file)


def test_an_unknown_ending_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"\.csv"):
        read(tmp_path / "rows.txt")
