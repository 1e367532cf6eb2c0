"""Tables of files: types, categories, splits, and what is refused."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import csv, parquet

from search_spaces.errors import UserError
from trainables.base import Split
from trainables.data.tables.config import TableConfig
from trainables.data.tables.files import problems, read
from trainables.data.tables.table import DataTable, prepare


def people(rows: int = 300) -> dict[str, list[Any]]:
    rng = np.random.default_rng(0)
    return {
        "age": [None if i % 10 == 0 else float(i) for i in range(rows)],
        "town": [None if i % 7 == 0 else "abc"[i % 3] for i in range(rows)],
        "code": [i % 4 for i in range(rows)],
        "member": [i % 2 == 0 for i in range(rows)],
        "weight": rng.random(rows).tolist(),
        "price": rng.random(rows).tolist(),
    }


def table(folder: Path, columns: dict[str, list[Any]], **data: Any) -> DataTable:
    folder.mkdir(exist_ok=True)
    parquet.write_table(pa.table(columns), folder / "rows.parquet")
    config = {"path": str(folder / "rows.parquet"), "target": "price", **data}
    return prepare(TableConfig.model_validate(config), folder / "cache")


def test_columns_are_numbers_or_categories_with_missing_values(tmp_path: Path) -> None:
    made = table(tmp_path, people(), categorical=["code"], weight="weight")
    assert made.schema.task == "regression"
    assert dict(made.schema.columns) == {
        "age": None,
        "town": ["a", "b", "c"],
        "code": ["0", "1", "2", "3"],
        "member": None,
    }
    x, y, weights = made.rows(Split.TRAIN)
    assert np.isnan(x[:, :2]).any(0).all()
    assert set(x[:, 2]) == {0, 1, 2, 3}
    assert set(x[:, 3]) == {0, 1}
    assert weights is not None
    assert len(x) == len(y) == len(weights)
    counts = [len(made.rows(split)[1]) for split in Split]
    assert sum(counts) == 300
    assert min(counts) > 15


def test_equal_rows_are_in_one_split_whatever_else_is_there(tmp_path: Path) -> None:
    few = {name: values[:200] for name, values in people().items()}
    doubled = {name: values + values for name, values in people().items()}
    rows: list[list[set[bytes]]] = []
    for name, columns in (("few", few), ("all", doubled)):
        made = table(tmp_path / name, columns, exclude=["weight"])
        rows.append([{y.tobytes() for y in made.rows(split)[1]} for split in Split])
    assert all(one <= more for one, more in zip(*rows, strict=True))
    assert not rows[1][0] & rows[1][1]


def test_csv_gives_the_same_table_as_parquet(tmp_path: Path) -> None:
    columns = people()
    whole = table(tmp_path / "parquet", columns)
    text = tmp_path / "rows.csv"
    csv.write_csv(pa.table(columns), text)
    zipped = tmp_path / "rows.csv.gz"
    zipped.write_bytes(gzip.compress(text.read_bytes()))
    for path in (text, zipped):
        config = TableConfig(path=[str(path)], target="price")
        read = prepare(config, tmp_path / path.name.replace(".", "_"))
        assert read.schema == whole.schema
        for split in Split:
            for ours, theirs in zip(read.rows(split)[:2], whole.rows(split)[:2], strict=True):
                np.testing.assert_array_equal(ours, theirs)


def test_categories_only_outside_of_the_train_split_are_missing_and_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    columns = people()
    parquet.write_table(pa.table(columns), tmp_path / "rows.parquet")
    other = {**columns, "town": ["elsewhere"] * 300}
    parquet.write_table(pa.table(other), tmp_path / "later.parquet")
    paths = {"path": [str(tmp_path / "rows.parquet")], "target": "price"}
    config = TableConfig.model_validate({**paths, "test_path": str(tmp_path / "later.parquet")})
    made = prepare(config, tmp_path / "cache")
    assert "elsewhere" in caplog.text
    assert np.isnan(made.rows(Split.TEST)[0][:, 1]).all()
    assert len(made.rows(Split.TEST)[1]) == 300
    rows = made.schema.encode(read(tmp_path / "later.parquet", config), "later.parquet")
    np.testing.assert_array_equal(rows, made.rows(Split.TEST)[0])
    first = next(iter(made.schema.columns))
    (tmp_path / "twice.csv").write_text(f"{first},{first}\n1,2\n")
    with pytest.raises(UserError, match=f"several columns have the name '{first}'"):
        made.schema.encode(read(tmp_path / "twice.csv", config), "twice.csv")


@pytest.mark.parametrize(
    ("target", "task", "expected"),
    [
        (["b", "a"], None, ("binary", ("a", "b"))),
        ([True, False], None, ("binary", ("false", "true"))),
        ([10, 9, 100], "multiclass", ("multiclass", ("9", "10", "100"))),
        ([0.0, 1.0], "binary", ("binary", ("0", "1"))),
        ([3, 4, 7], "regression", ("regression", ())),
    ],
)
def test_task_and_classes_follow_from_the_target(
    tmp_path: Path, target: list[Any], task: str | None, expected: tuple[str, tuple[str, ...]]
) -> None:
    columns = {**people(), "price": [target[i * i % 11 % len(target)] for i in range(300)]}
    schema = table(tmp_path, columns, task=task).schema
    assert (schema.task, schema.classes) == expected


@pytest.mark.parametrize(
    ("changes", "data", "message"),
    [
        ({"price": [1, 2] * 150}, {}, "data.task"),
        ({"price": [1.0, 2.0] * 150}, {}, "data.task"),
        ({"age": [f"{1000 + i:,}" for i in range(300)]}, {}, "1,000"),
        ({"age": [f"{i}%" for i in range(300)]}, {}, "data.categorical"),
        ({"weight": [0.0] * 300}, {"weight": "weight"}, "no row with a weight above 0"),
        ({"price": ["a", "b", "c"] * 100}, {"task": "binary"}, "3 classes"),
        ({"price": ["a", "b"] * 150}, {"task": "regression"}, "is text"),
        ({"price": [1.0, None] * 150}, {}, "150 rows have no value, the first is row 2"),
        ({"age": [float("inf")] * 300}, {}, "row 1 is infinite"),
        ({"age": [*map(str, range(299)), "?"]}, {}, r"not \?; .* data.missing"),
        ({"age": [[1]] * 300}, {}, "neither number nor text"),
        ({}, {"weight": "town"}, "'town' is text, and no number"),
        ({"weight": [-1.0] * 300}, {"weight": "weight"}, "row 1 has none of at least 0"),
        ({}, {"features": ["agee"]}, "did you mean 'age'"),
        ({}, {"features": ["price"]}, "'price' is in features"),
        ({}, {"exclude": ["age", "town", "code", "member", "weight"]}, "no column is left"),
    ],
)
def test_what_cannot_be_read_is_refused(
    tmp_path: Path, changes: dict[str, Any], data: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        table(tmp_path, {**people(), **changes}, **data)


@pytest.mark.parametrize("ending", ["parquet", "csv"])
@pytest.mark.parametrize("name", [None, "customer"])
def test_the_index_of_pandas_is_no_column_unless_it_is_named(
    tmp_path: Path, ending: str, name: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    frame = pd.DataFrame(people()).sample(frac=1, random_state=0).rename_axis(name)
    file = tmp_path / f"rows.{ending}"
    frame.to_parquet(file) if ending == "parquet" else frame.to_csv(file)
    config = TableConfig(path=[str(file)], target="price")
    known = ending == "parquet" or name is None  # a CSV file does not say that it has one
    assert ([*prepare(config, tmp_path).schema.columns] == [*frame.columns[:-1]]) is known
    assert ("index of pandas" in caplog.text) is known
    if name:
        named = config.model_copy(update={"features": [name, "age"]})
        assert [*prepare(named, tmp_path).schema.columns] == [name, "age"]


def test_rows_that_are_trained_on_and_held_out_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    frame = pd.DataFrame(people())
    frame.to_csv(tmp_path / "all.csv", index=False)
    frame[:50].to_csv(tmp_path / "val.csv", index=False)
    given = {"target": "price", "selection_path": [str(tmp_path / "val.csv")]}
    both = TableConfig(path=[str(tmp_path / "*.csv")], **given)
    assert "val.csv: is in data.path and data.selection_path" in next(problems(both))
    prepare(TableConfig(path=[str(tmp_path / "all.csv")], **given), tmp_path)
    assert "rows are in the train split and in another" in caplog.text
    for name, classes in (("all", "ab"), ("val", "abc")):
        frame["price"] = [classes[i % len(classes)] for i in range(300)]
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
    with pytest.raises(UserError, match="class 'c' is in no row of the train split"):
        prepare(TableConfig(path=[str(tmp_path / "all.csv")], **given), tmp_path)


def test_cells_of_csv_files_have_lines_and_what_is_no_utf_8_is_named(tmp_path: Path) -> None:
    lines = [f'{i},"one {i % 3}\n{"x" * 400}",{i / 7}' for i in range(6000)]  # of several blocks
    (tmp_path / "a.csv").write_text("\n".join(["age,town,price", *lines]))
    config = TableConfig(path=[str(tmp_path / "a.csv")], target="price")
    made = prepare(config, tmp_path)
    assert sum(len(made.rows(split)[1]) for split in Split) == 6000
    assert len(made.schema.columns["town"] or ()) == 3
    for text, message in (("age,größe,price\n1,2,3", "cannot be read"), ("age,price\nä,3", "UTF")):
        (tmp_path / "a.csv").write_bytes(text.encode("latin-1"))
        with pytest.raises(UserError, match=message):
            prepare(config, tmp_path)


def test_too_few_rows_for_three_splits_are_refused(tmp_path: Path) -> None:
    few = {name: values[:3] for name, values in people().items()}
    with pytest.raises(UserError, match="split has no row"):
        table(tmp_path, few)


def test_values_that_mean_missing_are_numbers_no_more(tmp_path: Path) -> None:
    text = tmp_path / "rows.csv"
    text.write_text("age,price\n" + "".join(f"{i if i % 5 else '?'},{i}.5\n" for i in range(300)))
    given = {"path": str(text), "target": "price", "missing": ["?"]}
    made = prepare(TableConfig.model_validate(given), tmp_path / "cache")
    assert made.schema.columns == {"age": None}
    assert np.isnan(made.rows(Split.TRAIN)[0]).any()


def test_problems_are_found_by_a_look_at_the_files(tmp_path: Path) -> None:
    for name, text in (("a.csv", "x,y\n1,2\n"), ("b.csv", "x\n1\n"), ("c.xls", "x")):
        (tmp_path / name).write_text(text)
    found = problems(TableConfig(path=[str(tmp_path / "*"), "none-*.csv"], target="y"))
    words = ("none-", "b.csv: no column 'y'", ".xls")
    assert all(word in text for text, word in zip(found, words, strict=True))


def test_damaged_rows_are_refused_with_their_place(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,y\n1,2\n3\n")
    config = TableConfig(path=[str(tmp_path / "a.csv")], target="y")
    with pytest.raises(UserError, match="Row #3"):
        prepare(config, tmp_path / "cache")
