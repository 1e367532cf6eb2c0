"""Optuna's parameters as points of a unit cube, for models that need numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

Array = NDArray[np.float64]


class Cube:
    """Every parameter of a space, those of all options included, as coordinates in [0, 1].

    A number has one coordinate, in its logarithm where it is drawn so; a category has one for each
    of its values, of which one is 1. A parameter that a trial does not have is in the middle.

    Attributes:
        space: name to distribution; constants are left out.
        width: number of coordinates.
    """

    def __init__(self, space: Mapping[str, BaseDistribution]) -> None:
        self.space = {k: d for k, d in space.items() if not d.single()}
        self.width = sum(_width(d) for d in self.space.values())

    def encode(self, params: Mapping[str, Any]) -> Array:
        """(width,), the point of a configuration."""
        parts = [
            _coordinates(d, params[name]) if name in params else np.full(_width(d), _absent(d))
            for name, d in self.space.items()
        ]
        return np.concatenate(parts) if parts else np.zeros(0)

    def decode(self, shares: Array) -> dict[str, Any]:
        """The configuration at shares (parameters,) in [0, 1] of each distribution."""
        pairs = zip(self.space.items(), shares, strict=True)
        return {name: _value(d, float(share)) for (name, d), share in pairs}

    def shares(self, params: Mapping[str, Any]) -> Array:
        """(parameters,), the inverse of `decode`; the middle for what is not there."""
        return np.array(
            [_share(d, params[n]) if n in params else 0.5 for n, d in self.space.items()]
        )


def _width(distribution: BaseDistribution) -> int:
    if isinstance(distribution, CategoricalDistribution):
        return len(distribution.choices)
    return 1


def _absent(distribution: BaseDistribution) -> float:
    return 0.0 if isinstance(distribution, CategoricalDistribution) else 0.5


def _coordinates(distribution: BaseDistribution, value: Any) -> Array:
    if isinstance(distribution, CategoricalDistribution):
        one = np.zeros(len(distribution.choices))
        one[int(distribution.to_internal_repr(value))] = 1.0
        return one
    return np.array([_share(distribution, value)])


def _share(distribution: BaseDistribution, value: Any) -> float:
    if isinstance(distribution, CategoricalDistribution):
        return (distribution.to_internal_repr(value) + 0.5) / len(distribution.choices)
    low, high, log = _bounds(distribution)
    here = np.log(value) if log else float(value)
    return float(np.clip((here - low) / (high - low), 0.0, 1.0))


def _value(distribution: BaseDistribution, share: float) -> Any:
    if isinstance(distribution, CategoricalDistribution):
        choices = distribution.choices
        return choices[min(int(share * len(choices)), len(choices) - 1)]
    assert isinstance(distribution, FloatDistribution | IntDistribution)
    low, high, log = _bounds(distribution)
    here = low + share * (high - low)
    value = float(np.exp(here)) if log else here
    if distribution.step is not None:
        steps = round((value - distribution.low) / distribution.step)
        value = distribution.low + steps * distribution.step
    value = min(max(value, distribution.low), distribution.high)
    return int(value) if isinstance(distribution, IntDistribution) else float(value)


def _bounds(distribution: BaseDistribution) -> tuple[float, float, bool]:
    """The range that shares divide evenly: half a step more at both ends, or its logarithm."""
    assert isinstance(distribution, FloatDistribution | IntDistribution)
    half = (distribution.step or 0) / 2 if isinstance(distribution, IntDistribution) else 0.0
    low, high = distribution.low - half, distribution.high + half
    if distribution.log:
        return float(np.log(low)), float(np.log(high)), True
    return float(low), float(high), False
