"""The domains of a space, with Ray Tune's names and argument order.

Each returns the form that a sweep file has, and `Sweep` checks it as it checks a file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Form = dict[str, Any]
"""A domain as in a sweep file: `{"uniform": [0, 1]}`."""


def uniform(lower: float, upper: float) -> Form:
    """A real number from `lower` to `upper`."""
    return {"uniform": [lower, upper]}


def loguniform(lower: float, upper: float) -> Form:
    """A real number, uniform in its logarithm.

    >>> loguniform(1e-4, 1e-1)
    {'loguniform': [0.0001, 0.1]}
    """
    return {"loguniform": [lower, upper]}


def randint(lower: int, upper: int) -> Form:
    """A whole number from `lower` to `upper - 1`."""
    return {"randint": [lower, upper]}


def lograndint(lower: int, upper: int) -> Form:
    """A whole number from `lower` to `upper - 1`, uniform in its logarithm."""
    return {"lograndint": [lower, upper]}


def quniform(lower: float, upper: float, q: float) -> Form:
    """A multiple of `q` from `lower` to `upper`."""
    return {"quniform": [lower, upper, q]}


def qloguniform(lower: float, upper: float, q: float) -> Form:
    """A multiple of `q`, uniform in its logarithm."""
    return {"qloguniform": [lower, upper, q]}


def qrandint(lower: int, upper: int, q: int) -> Form:
    """A whole multiple of `q` from `lower` to `upper`."""
    return {"qrandint": [lower, upper, q]}


def qlograndint(lower: int, upper: int, q: int) -> Form:
    """A whole multiple of `q`, uniform in its logarithm."""
    return {"qlograndint": [lower, upper, q]}


def randn(mean: float = 0.0, sd: float = 1.0) -> Form:
    """A normally distributed number."""
    return {"randn": [mean, sd]}


def qrandn(mean: float, sd: float, q: float) -> Form:
    """A normally distributed multiple of `q`."""
    return {"qrandn": [mean, sd, q]}


def choice(options: Sequence[Any] | Mapping[str, Any]) -> Form:
    """One of several values; a mapping gives each option parameters of its own.

    >>> choice({"sgd": {"momentum": uniform(0, 1)}, "adam": {}})
    {'choice': {'sgd': {'momentum': {'uniform': [0, 1]}}, 'adam': {}}}
    """
    return {"choice": options}


def ordinal(values: Sequence[Any]) -> Form:
    """One of several values whose order counts."""
    return {"ordinal": values}


def grid_search(values: Sequence[Any]) -> Form:
    """Each of the values is tried, with each value of other grids."""
    return {"grid_search": values}
