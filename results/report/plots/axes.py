"""Map hyperparameters to plot axes: logarithmic where the search was, categories by name."""

from __future__ import annotations

import html
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from search_spaces.domains.domain import Domain

ABSENT = object()
"""Stands for the value of a parameter that a trial does not have."""
_NO_VALUE = "(none)"
_MAX_WHOLE = 10
"""A plot that chooses its ticks puts them at whole numbers over a longer range."""


@dataclass(frozen=True)
class Axis:
    """One axis, and the coordinate of each trial on it.

    Attributes:
        title: escaped for the page.
        values: a coordinate per trial: the value, its logarithm to base 10, or the index of its
            category.
        ticks: coordinate → label, not escaped; empty if the plot may choose.
        continuous: whether coordinates between those of the trials have a meaning.
    """

    title: str
    values: list[float]
    ticks: dict[float, str]
    continuous: bool


def text(value: object) -> str:
    """Escape a user's text for a plot: plotly interprets some HTML in its labels."""
    return html.escape(str(value))


def parameter_axis(name: str, values: Sequence[Any], domain: Domain | None) -> Axis:
    """The axis of one hyperparameter; the values may hold `ABSENT`."""
    numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)
    if not numbers or not values or (domain is not None and domain.is_categorical):
        labels = [
            _NO_VALUE if v is ABSENT else v if isinstance(v, str) else json.dumps(v) for v in values
        ]
        places = {label: float(i) for i, label in enumerate(sorted(set(labels), key=_order))}
        ticks = {place: label for label, place in places.items()}
        return Axis(text(name), [places[label] for label in labels], ticks, continuous=False)
    if domain is not None and domain.log and min(values) > 0:
        logs = [math.log10(v) for v in values]
        return Axis(text(name), logs, _decades(min(logs), max(logs)), continuous=True)
    whole = all(isinstance(v, int) for v in values)
    ticks = {float(v): str(v) for v in _few_whole(values)} if whole else {}
    return Axis(text(name), [float(v) for v in values], ticks, continuous=True)


def whole_ticks(values: Sequence[float]) -> dict[str, Any]:
    """Settings of a plot's axis for whole numbers: no ticks in between, even if they are few."""
    return {"dtick": 1} if _few_whole(values) else {}


def _few_whole(values: Sequence[float]) -> range:
    """All whole numbers of the range, if a plot would put ticks in between; else none."""
    low, high = math.floor(min(values, default=0)), math.ceil(max(values, default=0))
    return range(low, high + 1) if high - low <= _MAX_WHOLE else range(0)


def axes(params: Sequence[Mapping[str, Any]], domains: Mapping[str, Domain]) -> dict[str, Axis]:
    """An axis for each parameter that takes more than one value, in the order of the space."""
    names = dict.fromkeys([*domains, *(name for p in params for name in p)])
    columns = {name: [p.get(name, ABSENT) for p in params] for name in names}
    return {
        name: parameter_axis(name, column, domains.get(name))
        for name, column in columns.items()
        if any(value != column[0] for value in column)
    }


def _order(label: str) -> tuple[float, str]:
    try:
        return float(label), label
    except ValueError:
        return math.inf, label


def _decades(low: float, high: float) -> dict[float, str]:
    """Ticks of a logarithmic axis: whole decades, or 1, 2 and 5 of each if there are few."""
    whole = range(math.floor(low), math.ceil(high) + 1)
    parts = (1,) if len(whole) > 4 else (1, 2, 5)
    ticks = {math.log10(part) + e: f"{part * 10.0**e:g}" for e in whole for part in parts}
    inside = {at: label for at, label in ticks.items() if low <= at <= high}
    return inside or {low: f"{10**low:.3g}", high: f"{10**high:.3g}"}
