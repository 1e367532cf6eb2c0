"""One way to read rows: the same of every format, and what cannot be read is named."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import Dataset

from search_spaces.errors import UserError
from trainables.data.bad_rows import BadRow
from trainables.data.readers import (
    MESSAGES,
    TEXT,
    TableColumns,
    matching_files,
    path_problem,
    read_file,
    table_problems,
)

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


def zstd(content: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as packed:
        packed.write(content)
    return sink.getvalue().to_pybytes()


CELLS = b"".join(b'\nq%d,"a, b"' % i for i in range(80))


def write_csv(file: Path) -> None:
    mark = "\t" if file.suffix == ".tsv" else ","
    rows = [f'q{i}{mark}"a, b"' for i in range(80)]
    file.write_text("\n".join([f"question{mark}answer", *rows]))


FILES = {
    "lines.jsonl": lambda file: file.write_bytes(LINES),
    "lines.json": lambda file: file.write_bytes(LINES),
    "list.json": lambda file: file.write_text(json.dumps(ROWS, indent=1)),
    "packed.jsonl.gz": lambda file: file.write_bytes(gzip.compress(LINES)),
    "packed.jsonl.zst": lambda file: file.write_bytes(zstd(LINES)),
    "packed.csv.zst": lambda file: file.write_bytes(zstd(b"question,answer" + CELLS)),
    "packed.json.gz": lambda file: file.write_bytes(gzip.compress(json.dumps(ROWS).encode())),
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
    "open.csv": (b'question,answer\nq,a\nq,"a\nq,a\n', ["open.csv:3"]),
    "quotes.csv": (b'question,answer\nq,a\nq,"a "b" c"\nq,a\n', ["quotes.csv:3"]),
    "a.jsonl.gz": (gzip.compress(LINES)[:-12], ["further"]),
    "a.jsonl.zst": (zstd(LINES)[:-12], ["further"]),
    "b.jsonl.zst": (b"no", ["further"]),
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


def test_long_cells_are_read_and_doubled_columns_refused(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text(f"question,answer\nq,{'a' * 200_000}\n")
    assert [len(row["answer"]) for row in read(file)] == [200_000]
    file.write_text("question,answer,answer\nq,a,b\n")
    with pytest.raises(UserError, match="several columns have one name"):
        read(file)


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


def test_two_names_of_a_file_count_once(tmp_path: Path) -> None:
    (tmp_path / "b.jsonl").write_bytes(LINES)
    (tmp_path / "a.jsonl").write_bytes(LINES)
    (tmp_path / "c.jsonl").symlink_to("b.jsonl")
    found = matching_files(["*.jsonl", f"../{tmp_path.name}/b.jsonl"], tmp_path)
    assert sorted(file.name for file in found) == ["a.jsonl", "b.jsonl"]


def test_what_a_glob_without_files_may_mean_is_said(tmp_path: Path) -> None:
    Dataset.from_list(ROWS).save_to_disk(tmp_path / "saved" / "train")
    (tmp_path / "saved" / "dataset_dict.json").write_text("{}")
    assert path_problem(str(tmp_path / "saved" / "train")) is None
    assert f"{tmp_path}/saved/train" in str(path_problem(str(tmp_path / "saved")))
    assert f"{tmp_path}/*" in str(path_problem(str(tmp_path)))
    assert "hf://datasets/OWNER/NAME@REVISION" in str(path_problem("nobody/rows"))


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A local cache of the hub, which cannot be reached, with a data set at two revisions."""
    folder = tmp_path / "datasets--somebody--rows"
    for revision, commit, rows in (("main", "a" * 40, 80), ("v1", "b" * 40, 3)):
        (folder / "snapshots" / commit / "data").mkdir(parents=True)
        lines = b"".join(LINES.splitlines(keepends=True)[:rows])
        (folder / "snapshots" / commit / "data" / "rows.jsonl").write_bytes(lines)
        (folder / "refs").mkdir(exist_ok=True)
        (folder / "refs" / revision).write_text(commit)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    return folder


@pytest.mark.parametrize(("revision", "rows"), [("", 80), ("@v1", 3), (f"@{'b' * 40}", 3)])
def test_data_sets_of_the_hub_have_revisions(revision: str, rows: int, hub: Path) -> None:
    pattern = f"hf://datasets/somebody/rows{revision}/**/*.jsonl"
    assert path_problem(pattern) is None
    (file,) = matching_files([pattern])
    assert read(file) == ROWS[:rows]


def test_what_the_hub_cannot_give_is_one_line(hub: Path) -> None:
    for name in ("somebody/rows@v2", "somebody/others"):
        problem = str(path_problem(f"hf://datasets/{name}/*.jsonl"))
        assert name.partition("@")[0] in problem
        assert "cannot be reached" in problem
        assert "\n" not in problem
    assert "/GLOB" in str(path_problem("hf://datasets/somebody/rows"))
