"""Rows of texts with a label or a number. No torch: `tune plan` checks them with it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from search_spaces.errors import suggest
from trainables.data.bad_rows import BadRow
from trainables.data.conversations.config import GENERATED_HELP
from trainables.data.readers import ANYTHING, TEXT, TableColumns, read_file
from trainables.data.splits import exact_split
from trainables.dpo.config import PairsConfig

PACKAGES = 8
"""Labels of `docstrings`: the packages with most texts."""


class ClassifierDataConfig(PairsConfig):
    """Texts with a label or a number, or preferred and rejected answers; split 90/5/5."""

    source: Literal["docstrings", "arithmetic", "countdown", "sorting", "format", "files"] = Field(  # type: ignore[assignment]
        "docstrings",
        description="task labels, docstrings: the packages of this machine's Python standard"
        f" library that texts of their documentation are from; task reward: {GENERATED_HELP}",
    )
    text: str = Field("text", description="labels and regression: column of the texts")
    text_pair: str | None = Field(None, description="column of second texts; null: there are none")
    label: str | None = Field(
        None,
        description="column of the labels (names or whole numbers), or of the numbers; null: label",
    )


@dataclass(frozen=True)
class LabelledText:
    """A text, or a pair of texts.

    Attributes:
        place: file and line.
        texts: one or two.
        label: its name; or a number; None: it is not given.
        unit: what must stay in one split.
    """

    place: str
    texts: tuple[str, ...]
    label: str | float | None
    unit: str


Row = LabelledText | BadRow


def read_labelled(
    files: Sequence[Path], data: ClassifierDataConfig, *, numbers: bool, known: bool = True
) -> Iterator[Row]:
    """All rows of files, in order.

    Args:
        files: of the rows.
        data: names the columns.
        numbers: whether labels are numbers.
        known: whether the rows have labels, and are split.

    Raises:
        UserError: a file lacks a column, or has another type there, or an unknown ending.
    """
    texts = [name for name in (data.text, data.text_pair) if name]
    column = data.label or "label"
    others = [name for name in (column, data.split_by) if name and known]
    columns = TableColumns({**dict.fromkeys(others, ANYTHING), **dict.fromkeys(texts, TEXT)})

    def read(place: str, row: Mapping[str, Any], split: str | None) -> Row:
        if missing := [name for name in (*texts, *others) if name not in row]:
            return BadRow(f"{place}: no '{missing[0]}'{suggest(missing[0], row)}")
        for name in texts:
            if not isinstance(row[name], str) or not row[name].strip():
                return BadRow(f"{place}: '{name}' must be a text, not empty, got {row[name]!r}")
        label, given = None, tuple(row[name] for name in texts)
        if known and (label := (_number if numbers else _name)(row[column])) is None:
            wanted = "a finite number" if numbers else "a name or a whole number"
            return BadRow(f"{place}: '{column}' must be {wanted}, got {row[column]!r}")
        unit = str(row[data.split_by]) if data.split_by in others else "\n".join(given)
        return LabelledText(place, given, label, split or unit)

    for file in files:
        split = exact_split(file) if known and data.splits == "file_names" else None
        for row in read_file(file, columns):
            yield row if isinstance(row, BadRow) else read(*row, split)


def _number(value: Any) -> float | None:
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


def _name(value: Any) -> str | None:
    """A label in the form in which labels are compared; a column with nulls has floats."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value).strip() or None if isinstance(value, str | int) else None


def packages(rows: Iterator[Row]) -> list[Row]:
    """Documentation whose label is its module, labelled by the package; of large packages only."""
    found = [
        replace(r, label=str(r.label).partition(".")[0]) for r in rows if not isinstance(r, BadRow)
    ]
    most = {name for name, _ in Counter(r.label for r in found).most_common(PACKAGES)}
    return [row for row in found if row.label in most]


def label_names(labels: Iterable[str]) -> list[str]:
    """Names of labels in order: whole numbers by their value, before texts by the alphabet."""
    return sorted(set(labels), key=lambda n: (0, int(n), n) if n.isdecimal() else (1, 0, n))
