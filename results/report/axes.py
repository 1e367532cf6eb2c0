"""Hyperparameters on axes: logarithms where they were searched so, and categories by name."""

from __future__ import annotations

import html
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from search_spaces.domains.domain import Domain

ABSENT = object()
"""In place of the value of a trial that does not have the parameter."""
_NO_VALUE = "(none)"


@dataclass(frozen=True)
class Axis:
    """One axis, and where each trial lies on it.

    Attributes:
        title: for the page, escaped.
        values: a coordinate per trial: of logarithms to base 10, of indices of categories.
        ticks: coordinate to label, not escaped; empty where the plot may choose.
        continuous: whether values between those of the trials mean something.
    """

    title: str
    values: list[float]
    ticks: dict[float, str]
    continuous: bool


def text(value: object) -> str:
    """What a user named, for a plot: plotly reads a part of HTML in all its labels."""
    return html.escape(str(value))


def parameter_axis(name: str, values: Sequence[Any], domain: Domain | None) -> Axis:
    """The axis of one hyperparameter; the values may hold `ABSENT`."""
    numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)
    if not numbers or not values or (domain is not None and domain.is_categorical):
        return _categories(name, values)
    if domain is not None and domain.log and min(values) > 0:
        logs = [math.log10(v) for v in values]
        return Axis(text(name), logs, _decades(min(logs), max(logs)), continuous=True)
    return Axis(text(name), [float(v) for v in values], {}, continuous=True)


def axes(params: Sequence[Mapping[str, Any]], domains: Mapping[str, Domain]) -> dict[str, Axis]:
    """An axis for each parameter that takes more than one value, in the order of the space."""
    names = dict.fromkeys([*domains, *(name for p in params for name in p)])
    columns = {name: [p.get(name, ABSENT) for p in params] for name in names}
    return {
        name: parameter_axis(name, column, domains.get(name))
        for name, column in columns.items()
        if any(value != column[0] for value in column)
    }


def _categories(name: str, values: Sequence[Any]) -> Axis:
    labels = [
        _NO_VALUE if v is ABSENT else v if isinstance(v, str) else json.dumps(v) for v in values
    ]
    places = {label: float(i) for i, label in enumerate(sorted(set(labels), key=_order))}
    ticks = {place: label for label, place in places.items()}
    return Axis(text(name), [places[label] for label in labels], ticks, continuous=False)


def _order(label: str) -> tuple[float, str]:
    try:
        return float(label), label
    except ValueError:
        return math.inf, label


def _decades(low: float, high: float) -> dict[float, str]:
    """Ticks of a logarithmic axis: whole decades, or 1, 2, 5 of each where there are few."""
    whole = range(math.floor(low), math.ceil(high) + 1)
    parts = (1,) if len(whole) > 4 else (1, 2, 5)
    ticks = {math.log10(part) + e: f"{part * 10.0**e:g}" for e in whole for part in parts}
    inside = {place: label for place, label in ticks.items() if low <= place <= high}
    return inside or {low: f"{10**low:.3g}", high: f"{10**high:.3g}"}
