"""The columns that a model reads, and the numbers of their categories.

Categories are those of the train split, numbered in order; others are missing values, and named.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from search_spaces.errors import UserError, suggest
from trainables.data.tables.config import Task
from trainables.data.tables.files import Array, numbers, texts

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)

SCHEMA = "table.json"
SHOWN = 5
"""Values that a message quotes."""
_SIGNS = re.compile(r"[\s,'$€£¥%]")
"""Characters that people write in numbers."""


@dataclass(frozen=True)
class Schema:
    """What a model reads and predicts.

    Attributes:
        columns: name → categories, in the order of their numbers; None for a column of numbers.
        classes: names of the classes, in order; none for regression.
    """

    task: Task
    columns: Mapping[str, list[str] | None]
    classes: tuple[str, ...]

    @classmethod
    def load(cls, folder: Path) -> Schema:
        """The schema in a folder of a table or model."""
        found = json.loads((folder / SCHEMA).read_text())
        return cls(**{**found, "classes": tuple(found["classes"])})

    def save(self, folder: Path) -> None:
        """Write `table.json`."""
        (folder / SCHEMA).write_text(json.dumps(asdict(self), indent=1))

    @property
    def categorical(self) -> list[int]:
        """Numbers of the columns of categories."""
        return [at for at, known in enumerate(self.columns.values()) if known is not None]

    def encode(self, table: pa.Table, where: str) -> Array:
        """The columns as float64 [rows, columns]; a category that is not known is NaN, and named.

        Raises:
            UserError: a column is missing, or of another type.
        """
        return np.stack([self._column(table, name, where) for name in self.columns], axis=1)

    def _column(self, table: pa.Table, name: str, where: str) -> Array:
        if name not in table.column_names:
            raise UserError(f"{where}: no column '{name}'{suggest(name, table.column_names)}")
        if table.column_names.count(name) > 1:
            raise UserError(f"{where}: several columns have the name '{name}'")
        known = self.columns[name]
        if known is None:
            return numbers(name, table[name])
        values = texts(table[name])
        codes = codes_of(values, known)
        new = sorted(set(values.filter(np.isnan(codes)).drop_null().unique().to_pylist()))
        if new:
            shown = ", ".join(new[:SHOWN]) + (", …" if len(new) > SHOWN else "")
            text = "column '%s': %d categories are not in the train split and count as missing: %s"
            log.warning(f"{where}: {text}", name, len(new), shown)
        return codes


def codes_of(values: pa.ChunkedArray, known: list[str]) -> Array:
    """Numbers of categories, NaN for missing and unknown ones."""
    import pyarrow as pa
    import pyarrow.compute as pc

    found = pc.index_in(values, value_set=pa.array(known, pa.string()))
    return np.array(found.cast(pa.float64()).to_numpy(), dtype=np.float64)


def categories_of(column: pa.ChunkedArray) -> list[str]:
    """The categories of a column, in order."""
    return sorted(texts(column).drop_null().unique().to_pylist())


def check_text(name: str, column: pa.ChunkedArray) -> None:
    """Pass if a column of text is one of categories.

    Raises:
        UserError: it is text only because of a few values, or of signs in its numbers.
    """

    def is_number(text: str) -> bool:
        try:
            return bool(np.isfinite(float(text)))
        except ValueError:
            return False

    values = categories_of(column)
    others = [text for text in values if not is_number(text)]
    if others and sum(is_number(_SIGNS.sub("", text)) for text in values) > len(values) / 2:
        raise UserError(
            f"column '{name}': most values are numbers, but not {', '.join(others[:SHOWN])}; remove"
            " their signs, name them in data.missing, or the column in data.categorical"
        )
