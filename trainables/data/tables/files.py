"""Reads tables of files, and those that scikit-learn contains, as Arrow tables."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from search_spaces.errors import UserError
from trainables.base import Split
from trainables.data.bad_rows import first_line
from trainables.data.readers import is_text, matching_files, missing_column, path_problem
from trainables.data.splits import HELD_OUT
from trainables.data.tables.config import TableConfig

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)
Array = npt.NDArray[np.float64]
ENDINGS = (".parquet", ".csv", ".tsv", ".csv.gz", ".tsv.gz")


def files_of(data: TableConfig) -> dict[Split, list[Path]]:
    """The files of each split; those of TRAIN hold the splits without files of their own."""
    return {
        Split.TRAIN: matching_files(data.path),
        Split.SELECTION: matching_files(data.selection_path),
        Split.TEST: matching_files(data.test_path),
    }


def problems(data: TableConfig) -> Iterator[str]:
    """What the files lack, as far as their names and columns show it, a line each."""
    yield from filter(None, map(path_problem, (*data.path, *data.selection_path, *data.test_path)))
    files = files_of(data)
    trained = {file.resolve() for file in files[Split.TRAIN]}
    for split in HELD_OUT:
        both = (file for file in files[split] if file.resolve() in trained)
        yield from (f"{file}: is in data.path and data.{split}_path" for file in both)
    for file in chain(*files.values()):
        try:
            names = read(file, data, head=True).column_names
        except UserError as e:
            yield str(e)
            continue
        yield from (missing_column(file, n, names) for n in data.needed if n not in names)


def read_all(data: TableConfig) -> tuple[pa.Table, dict[Split, int]]:
    """All rows, and how many are of the files of each split, in this order.

    Whole numbers become fractions where another file has fractions.

    Raises:
        UserError: a file cannot be read, or has other columns or types than another.
    """
    import pyarrow as pa

    if data.source:
        table = _of_sklearn(data.source)
        return table, {Split.TRAIN: len(table)}
    parts = {split: [read(f, data) for f in files] for split, files in files_of(data).items()}
    tables = [*chain(*parts.values())]
    names = [set(table.column_names) for table in tables]
    if extra := set.union(*names) - set.intersection(*names):
        raise UserError(f"data: not all files have column {', '.join(sorted(extra))}")
    try:
        whole = pa.concat_tables(tables, promote_options="permissive")
    except pa.ArrowException as e:
        raise UserError(f"data: the files do not go together ({first_line(e)})") from e
    return whole, {split: sum(map(len, found)) for split, found in parts.items()}


def read(path: Path, data: TableConfig, *, head: bool = False) -> pa.Table:
    """The rows of a file; with `head` none, only its columns.

    Raises:
        UserError: it cannot be read.
    """
    import pyarrow as pa
    from pyarrow import csv, parquet

    if not path.name.endswith(ENDINGS):
        raise UserError(f"{path}: tables are read from {', '.join(ENDINGS)}")
    try:
        if path.suffix == ".parquet":
            table = parquet.read_schema(path).empty_table() if head else parquet.read_table(path)
            return _without_index(table, path, data)
        mark = "\t" if ".tsv" in path.suffixes else ","
        parse = csv.ParseOptions(delimiter=mark, newlines_in_values=True)
        if head:
            with csv.open_csv(path, parse_options=parse) as reader:
                return _without_index(reader.schema.empty_table(), path, data)
        nulls = [*csv.ConvertOptions().null_values, *data.missing]
        options = csv.ConvertOptions(null_values=nulls, strings_can_be_null=True)
        table = csv.read_csv(path, convert_options=options, parse_options=parse)
        if bad := [field.name for field in table.schema if pa.types.is_binary(field.type)]:
            raise UserError(f"{path}: column '{bad[0]}' is not text in UTF-8")
        return _without_index(table, path, data)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as e:
        raise UserError(f"{path}: cannot be read ({first_line(e)})") from e


def _without_index(table: pa.Table, path: Path, data: TableConfig) -> pa.Table:
    """A table without the index of pandas, which numbers the rows, unless a setting names it."""
    index = ["", *(table.schema.pandas_metadata or {}).get("index_columns", ())]
    kept = [i for i, n in enumerate(table.column_names) if n not in index or n in data.needed]
    if len(kept) < table.num_columns and len(table):
        log.warning("%s: the index of pandas is not read", path)
    return table.select(kept)


def is_categorical(column: pa.ChunkedArray) -> bool:
    """Whether a column is one of categories by its type."""
    from pyarrow import types

    return bool(types.is_dictionary(column.type)) or is_text(column.type)


def numbers(name: str, column: pa.ChunkedArray) -> Array:
    """A column as float64, NaN where it has no value.

    Raises:
        UserError: it holds no numbers, or infinite ones.
    """
    import pyarrow as pa
    from pyarrow import types

    kind = column.type
    tests = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal, types.is_null)
    if not any(test(kind) for test in tests):
        lack = "text, and no number" if is_text(kind) else f"{kind}, neither number nor text"
        raise UserError(f"column '{name}' is {lack}; see data.exclude")
    if types.is_boolean(kind):
        column = column.cast(pa.int8())
    found: Array = np.array(column.cast(pa.float64(), safe=False).to_numpy(), dtype=np.float64)
    found[np.isnan(found)] = np.nan  # one kind of NaN, for digests
    if np.isinf(found).any():
        raise UserError(f"column '{name}': row {int(np.isinf(found).argmax()) + 1} is infinite")
    return found


def texts(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column of categories as text."""
    import pyarrow as pa
    from pyarrow import types

    if types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    return column.cast(pa.string())


def _of_sklearn(name: str) -> pa.Table:
    import pyarrow as pa
    from sklearn import datasets

    found = getattr(datasets, f"load_{name}")()
    names = [str(column) for column in found.feature_names]
    classes = found.get("target_names")
    target = found.target if classes is None else classes[found.target]
    return pa.table({**dict(zip(names, found.data.T, strict=True)), "target": target})
