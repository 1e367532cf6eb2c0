"""A table read once into arrays that all trials map into memory.

<cache>/table-<key>/<split>.x.npy   columns, float64 [rows, columns]
<cache>/table-<key>/<split>.y.npy   target, or number of the class, float64 [rows]
<cache>/table-<key>/<split>.w.npy   weights, if there are any, float64 [rows]
<cache>/table-<key>/table.json      the `Schema`
<cache>/table-<key>/meta.json       digest of the content, rows of each split
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from search_spaces.errors import UserError, suggest
from trainables.base import Split
from trainables.data.shared_folder import content_digest, publish_settings
from trainables.data.splits import ANY, split_by_digest, warn_if_shared
from trainables.data.tables.config import TableConfig, Task
from trainables.data.tables.files import (
    Array,
    files_of,
    is_categorical,
    numbers,
    problems,
    read_all,
    texts,
)
from trainables.data.tables.schema import SHOWN, Schema, categories_of, check_text, codes_of
from trainables.data.text.config import key_settings

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)

VERSION = 2
"""Of the arrays; raise it with any change of code that changes them."""
SHARE = 0.1
"""Fraction of the rows in the selection split, and in the test split."""


@dataclass(frozen=True)
class DataTable:
    """A folder of the cache."""

    folder: Path

    @cached_property
    def schema(self) -> Schema:
        """Columns and classes."""
        return Schema.load(self.folder)

    @cached_property
    def content(self) -> str:
        """SHA-256 of all rows and their splits."""
        return str(json.loads((self.folder / "meta.json").read_text())["content"])

    def rows(self, split: Split) -> tuple[Array, Array, Array | None]:
        """Columns [rows, columns], target [rows], and weights [rows] if the rows have them."""
        x, y = (np.load(self.folder / f"{split}.{k}.npy", mmap_mode="r") for k in "xy")
        weights = self.folder / f"{split}.w.npy"
        return x, y, np.load(weights, mmap_mode="r") if weights.exists() else None


def prepare(data: TableConfig, cache: Path, alive: Callable[[], None] = lambda: None) -> DataTable:
    """The table of a configuration, read once in a folder that trials share.

    Args:
        data: where it is.
        cache: the folder above it.
        alive: called every now and then while another process reads it.

    Raises:
        UserError: a file or column cannot be read, or a split is empty.
    """
    for problem in problems(data):
        raise UserError(f"data: {problem}")
    files = {s.value: [content_digest(f, cache) for f in fs] for s, fs in files_of(data).items()}
    paths = ("path", "selection_path", "test_path")
    settings = {"version": VERSION, "files": files, "data": key_settings(data, exclude=paths)}
    folder = publish_settings(
        cache, settings, lambda target: _build(data, target), prefix="table-", alive=alive
    )
    return DataTable(folder)


def _build(data: TableConfig, folder: Path) -> None:
    table, counts = read_all(data)
    features = _features(table.column_names, data)
    y, task, classes = _target(table[data.target], data)
    categorical = {n for n in features if n in data.categorical or is_categorical(table[n])}
    for name in categorical - {*data.categorical}:
        check_text(name, table[name])
    digests = _digests(table.select([*features, data.target]), categorical)
    splits = _splits(digests, counts)
    train = splits == Split.TRAIN
    columns = {
        n: categories_of(texts(table[n]).filter(train)) if n in categorical else None
        for n in features
    }
    schema = Schema(task, columns, classes)
    schema.save(folder)
    arrays = {"x": schema.encode(table, "data"), "y": y}
    if data.weight is not None:
        arrays["w"] = _weights(data.weight, table[data.weight])
    for split in Split:
        of_split = {kind: values[splits == split] for kind, values in arrays.items()}
        _check_split(split, of_split, schema)
        for kind, values in of_split.items():
            np.save(folder / f"{split}.{kind}.npy", values)
    if lacking := {*range(len(classes))} - {*y[train].tolist()}:
        problem = f"class '{classes[min(lacking)]}' is in no row of the train split"
        raise UserError(f"data: {problem}; give more rows of it, or remove it")
    warn_if_shared(zip(splits, digests, strict=True), "rows")
    content = hashlib.sha256("".join([*digests, *splits]).encode())
    content.update(arrays.get("w", np.zeros(0)).tobytes())
    rows = {split.value: int((splits == split).sum()) for split in Split}
    meta = {"content": content.hexdigest(), "rows": rows}
    (folder / "meta.json").write_text(json.dumps(meta, indent=1))
    log.info("data: %s, %d columns, rows: %s", task, len(features), rows)


def _check_split(split: Split, arrays: Mapping[str, Array], schema: Schema) -> None:
    """Pass if a model can learn from a split, or be judged by it."""
    lack = None if len(arrays["y"]) else "has no row"
    if schema.task == "binary" and len(np.unique(arrays["y"])) == 1:
        lack = "has rows of one class only"
    elif not lack and not arrays.get("w", np.ones(1)).any():
        lack = "has no row with a weight above 0"
    if lack:
        raise UserError(f"data: the {split} split {lack}; give more rows")


def _features(names: list[str], data: TableConfig) -> list[str]:
    """Columns to predict from."""
    if twice := {name for name in names if names.count(name) > 1}:
        raise UserError(f"data: several columns have the name '{twice.pop()}'")
    if lacking := [name for name in data.needed if name not in names]:
        raise UserError(f"data: no column '{lacking[0]}'{suggest(lacking[0], names)}")
    left_out = {data.target, data.weight, *data.exclude}
    found = [n for n in names if n not in left_out] if data.features is None else data.features
    if both := left_out & {*found}:
        raise UserError(f"data: '{both.pop()}' is in features, and not to predict from")
    if not found:
        raise UserError("data: no column is left to predict from")
    return found


def _target(column: pa.ChunkedArray, data: TableConfig) -> tuple[Array, Task, tuple[str, ...]]:
    """Values or numbers of classes, the task, and the names of the classes."""
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow import types

    name, task = data.target, data.known_task
    is_text, is_bool = is_categorical(column), types.is_boolean(column.type)
    if (at := column.is_null(nan_is_null=True).to_numpy()).any():
        rows = f"{int(at.sum())} rows have no value, the first is row {int(at.argmax()) + 1}"
        raise UserError(f"column '{name}': {rows}; leave them out")
    if not (task or is_text or is_bool or (numbers(name, column) % 1).any()):
        raise UserError(f"column '{name}' has whole numbers: set data.task to what they mean")
    if task == "regression" or not (task or is_text or is_bool):
        if is_text:
            raise UserError(f"column '{name}' is text: data.task cannot be regression")
        return numbers(name, column), "regression", ()
    values = texts(column)
    found = (values if is_text else column).combine_chunks().unique()
    in_order = found.take(pc.array_sort_indices(found))  # numbers by size, not by their digits
    classes = texts(pa.chunked_array([in_order])).to_pylist()
    if len(classes) < 2 or (task == "binary" and len(classes) > 2):
        raise UserError(f"column '{name}' has {len(classes)} classes: {', '.join(classes[:SHOWN])}")
    task = task or ("binary" if len(classes) == 2 else "multiclass")
    return codes_of(values, classes), task, tuple(classes)


def _weights(name: str, column: pa.ChunkedArray) -> Array:
    found = numbers(name, column)
    if (bad := ~(found >= 0)).any():
        raise UserError(f"weight '{name}': row {int(bad.argmax()) + 1} has none of at least 0")
    return found


def _digests(table: pa.Table, categorical: set[str]) -> list[str]:
    """SHA-256 of each row's values."""
    columns = []
    for name in table.column_names:
        if name in categorical or is_categorical(table[name]):
            codes = texts(table[name]).combine_chunks().dictionary_encode()
            known = [
                hashlib.sha256(str(v).encode()).digest()[:8] for v in codes.dictionary.to_pylist()
            ]
            hashes = np.frombuffer(b"".join([bytes(8), *known]), np.uint64)
            columns.append(hashes[codes.indices.fill_null(-1).to_numpy() + 1])
        else:
            columns.append(numbers(name, table[name]).view(np.uint64))
    rows = np.stack(columns, axis=1)
    return [hashlib.sha256(row.tobytes()).hexdigest() for row in rows]


def _splits(digests: list[str], counts: Mapping[Split, int]) -> npt.NDArray[np.str_]:
    """The split of each row."""
    own = {split for split, count in counts.items() if count and split is not Split.TRAIN}
    ends = np.cumsum(list(counts.values()))
    files = np.repeat(list(counts), np.diff(ends, prepend=0))
    return np.array(
        [
            split_by_digest(digest, SHARE, ANY - own) if file == Split.TRAIN else file
            for digest, file in zip(digests, files, strict=True)
        ]
    )
