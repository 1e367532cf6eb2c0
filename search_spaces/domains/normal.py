"""The normal distribution of `randn` and `qrandn`, and multiples of a quantisation step.

Searchers need bounds and a uniform scale: values beyond six standard deviations (a probability of
2e-9) are excluded, and a value is sampled by its quantile, which `at` converts back.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from statistics import NormalDist

SPREAD = 6
"""Standard deviations from the mean to the bounds."""
_DECIMALS = 9
"""Decimal places in units of sd. Float probabilities near 1 cannot distinguish more; with rounding
a value that is converted to its quantile and back is the same.
"""

_MAX_MULTIPLES = 1e15
"""Greater multiples are not distinct floats."""


@dataclass(frozen=True)
class Normal:
    """A normal distribution, truncated at `SPREAD` standard deviations.

    Attributes:
        mean, sd: of the distribution.
        q: every value is a multiple of it; None if it is not quantised.
    """

    mean: float
    sd: float
    q: float | None = None

    def bounds(self) -> tuple[float, float]:
        """The least and the greatest value; with a q, the outermost multiples in the range.

        Raises:
            ValueError: the arguments are invalid.
        """
        for name, value in (("sd", self.sd), ("q", self.q)):
            if value is not None and not 0 < value < math.inf:
                raise ValueError(f"needs {name} > 0, got {value}")
        low, high = self._ends
        if not (low < high and math.isfinite(low) and math.isfinite(high)):
            raise ValueError(
                f"needs mean - {SPREAD} sd < mean + {SPREAD} sd as numbers, "
                f"got mean {self.mean}, sd {self.sd}"
            )
        return (low, high) if self.q is None else self._outermost(low, high, self.q)

    @property
    def quantiles(self) -> tuple[float, float]:
        """Probabilities that `at` converts to the bounds. With a q they lie half a step outside the
        bounds, so that the outermost multiples get an interval of a whole step like all others.
        """
        (low, high), half = self.bounds(), (self.q or 0.0) / 2
        low, high = max(low - half, self._ends[0]), min(high + half, self._ends[1])
        known = NormalDist(self.mean, self.sd)
        return known.cdf(low), known.cdf(high)

    def quantile(self, value: float) -> float:
        """The probability of a smaller value, clipped to `quantiles`."""
        least, most = self.quantiles
        return min(max(NormalDist(self.mean, self.sd).cdf(value), least), most)

    def at(self, quantile: float) -> float:
        """The value at a quantile, clipped to the bounds and not yet quantised."""
        (low, high), (least, most) = self.bounds(), self.quantiles
        if not least < quantile < most:
            return low if quantile <= least else high
        value = NormalDist(self.mean, self.sd).inv_cdf(quantile)
        return min(max(self._rounded(value), low), high)

    @property
    def _ends(self) -> tuple[float, float]:
        reach = SPREAD * self.sd
        return self._rounded(self.mean - reach), self._rounded(self.mean + reach)

    def _rounded(self, value: float) -> float:
        return round(value, _DECIMALS - math.floor(math.log10(self.sd)))

    def _outermost(self, low: float, high: float, q: float) -> tuple[float, float]:
        if (reach := max(-low, high)) / q > _MAX_MULTIPLES:
            raise ValueError(f"needs a greater q, got {q} where values reach {reach:g}")
        first, last = (round(end / q) for end in (low, high))
        first += not is_multiple(low, q) and first * q < low
        last -= not is_multiple(high, q) and last * q > high
        if first >= last:
            raise ValueError(
                f"needs two multiples of q within {SPREAD} sd of the mean, "
                f"got q {q}, mean {self.mean}, sd {self.sd}"
            )
        return multiple_of(q, first), multiple_of(q, last)


def is_multiple(value: int | float, q: int | float) -> bool:
    """Whether a value is an integer multiple of q, up to a rounding error."""
    count = value / q
    return math.isfinite(count) and math.isclose(count, round(count))


def multiple_of(q: int | float, count: int) -> float:
    """`count` times q in decimal arithmetic: 3 times 0.05 is 0.15, which it is not in floats."""
    return float(Decimal(repr(q)) * count)
