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
    texts = [data.text, *([data.text_pair] if data.text_pair else [])]
    column = data.label or "label"
    others = [name for name in (column, data.split_by) if name and known]
    columns = TableColumns({**dict.fromkeys(others, ANYTHING), **dict.fromkeys(texts, TEXT)})
    for file in files:
        split = exact_split(file) if known and data.splits == "file_names" else None
        for found in read_file(file, columns):
            if isinstance(found, BadRow):
                yield found
                continue
            place, row = found
            if (problem := _problem(row, texts, others)) is not None:
                yield BadRow(f"{place}: {problem}")
                continue
            label = _label(row[column], numbers=numbers) if known else None
            if known and label is None:
                wanted = "a finite number" if numbers else "a name or a whole number"
                yield BadRow(f"{place}: '{column}' must be {wanted}, got {row[column]!r}")
                continue
            read = tuple(row[name] for name in texts)
            unit = str(row[data.split_by]) if data.split_by in others else "\n".join(read)
            yield LabelledText(place, read, label, split or unit)


def _problem(row: Mapping[str, Any], texts: list[str], others: list[str]) -> str | None:
    for name in (*texts, *others):
        if name not in row:
            return f"no '{name}'{suggest(name, row)}"
    for name in texts:
        if not isinstance(row[name], str) or not row[name].strip():
            return f"'{name}' must be a text that is not empty, got {row[name]!r}"
    return None


def _label(value: Any, *, numbers: bool) -> str | float | None:
    """A label in the form in which labels are compared; None: it is no label."""
    if numbers:
        try:
            number = math.nan if isinstance(value, bool) else float(value)
        except (TypeError, ValueError):
            return None
        return number if math.isfinite(number) else None
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # a column with nulls has floats
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
