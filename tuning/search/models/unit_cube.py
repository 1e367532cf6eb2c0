"""Maps Optuna's parameters to points of a unit cube, for models that need numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    """All parameters of a space, of every option, as coordinates in [0, 1].

    A number has one coordinate, in the logarithm for log distributions. A category is one-hot
    encoded. If a trial does not have a parameter, a number is 0.5 and a category all zeros.

    Attributes:
        space: name to distribution, without constants.
        width: number of coordinates.
    """

    def __init__(self, space: Mapping[str, BaseDistribution]) -> None:
        self.space = {k: d for k, d in space.items() if not d.single()}
        self._axes = [_axis(d) for d in self.space.values()]
        self.width = sum(axis.width for axis in self._axes)

    def encode(self, configurations: Sequence[Mapping[str, Any]]) -> Array:
        """Points (n, width) of configurations."""
        return self.points(*self._shares(configurations))

    def points(self, shares: Array, known: NDArray[np.bool_] | None = None) -> Array:
        """Points (m, width) of the configurations at shares (m, parameters).

        `known` says which parameters a configuration has; None: all of them.
        """
        known = np.ones(shares.shape, dtype=bool) if known is None else known
        columns = [axis.coordinates(shares[:, k], known[:, k]) for k, axis in enumerate(self._axes)]
        return np.concatenate([np.zeros((len(shares), 0)), *columns], axis=1)

    def decode(self, shares: Array) -> dict[str, Any]:
        """The configuration at shares (parameters,) in [0, 1] of each distribution."""
        pairs = zip(self.space, self._axes, shares, strict=True)
        return {name: axis.value(float(share)) for name, axis, share in pairs}

    def shares(self, configurations: Sequence[Mapping[str, Any]]) -> Array:
        """(n, parameters), the inverse of `decode`; 0.5 for missing parameters."""
        return self._shares(configurations)[0]

    def _shares(
        self, configurations: Sequence[Mapping[str, Any]]
    ) -> tuple[Array, NDArray[np.bool_]]:
        """The shares, and a mask of those that are known."""
        shares = np.full((len(configurations), len(self._axes)), 0.5)
        known = np.zeros(shares.shape, dtype=bool)
        for k, (name, axis) in enumerate(zip(self.space, self._axes, strict=True)):
            known[:, k] = [name in c for c in configurations]
            if known[:, k].any():
                values = [c[name] for c in configurations if name in c]
                shares[known[:, k], k] = axis.shares(values)
        return shares, known


class _Categories:
    """One coordinate per category."""

    def __init__(self, distribution: CategoricalDistribution) -> None:
        self._distribution = distribution
        self.width = len(distribution.choices)

    def shares(self, values: Sequence[Any]) -> Array:
        index = np.array([self._distribution.to_internal_repr(v) for v in values])
        return (index + 0.5) / self.width

    def value(self, share: float) -> Any:
        return self._distribution.choices[min(int(share * self.width), self.width - 1)]

    def coordinates(self, shares: Array, known: NDArray[np.bool_]) -> Array:
        index = np.minimum((shares * self.width).astype(int), self.width - 1)
        return np.where(known[:, None], np.eye(self.width)[index], 0.0)


class _Numbers:
    """One coordinate for a number. A share is uniform over the range, or over its logarithm; whole
    numbers get half a step more at both ends.
    """

    width = 1

    def __init__(self, distribution: FloatDistribution | IntDistribution) -> None:
        self._whole = isinstance(distribution, IntDistribution)
        self._least, self._most = distribution.low, distribution.high
        self._step, self._log = distribution.step, distribution.log
        half = (self._step or 0) / 2 if self._whole else 0.0
        bounds = np.array([self._least - half, self._most + half])
        self._low, self._high = map(float, np.log(bounds) if self._log else bounds)

    def shares(self, values: Sequence[float] | Array) -> Array:
        here = np.log(values) if self._log else np.array(values, dtype=float)
        return np.clip((here - self._low) / (self._high - self._low), 0.0, 1.0)

    def value(self, share: float) -> Any:
        value = self._values(np.array([share]))[0]
        return round(value) if self._whole else float(value)

    def coordinates(self, shares: Array, known: NDArray[np.bool_]) -> Array:
        """Rounded to nine decimals: equal configurations must not differ by a rounding error."""

        found = self.shares(self._values(shares)).round(9)
        return np.where(known, found, 0.5)[:, None]

    def _values(self, shares: Array) -> Array:
        here = self._low + shares * (self._high - self._low)
        values = np.exp(here) if self._log else here
        if self._step is not None:
            values = self._least + np.rint((values - self._least) / self._step) * self._step
        return np.clip(values, self._least, self._most)


def _axis(distribution: BaseDistribution) -> _Categories | _Numbers:
    if isinstance(distribution, CategoricalDistribution):
        return _Categories(distribution)
    assert isinstance(distribution, FloatDistribution | IntDistribution)
    return _Numbers(distribution)
