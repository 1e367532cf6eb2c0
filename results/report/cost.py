"""Time spent, in the unit that suits it: seconds are not told in thousandths of an hour."""

from __future__ import annotations

from dataclasses import dataclass

_SEVERAL = 2
"""So many of a unit there must be at least, or the next smaller one is taken."""


@dataclass(frozen=True)
class Unit:
    """One of time.

    Attributes:
        name: plural, as in `worker-hours`.
        sign: after a number.
        seconds: in one of it.
    """

    name: str
    sign: str
    seconds: float

    def of(self, seconds: float) -> str:
        """Three digits, without the sign."""
        return f"{seconds / self.seconds:.3g}"


_UNITS = (Unit("hours", "h", 3600.0), Unit("minutes", "min", 60.0))
_SECONDS = Unit("seconds", "s", 1.0)


def unit_for(seconds: float) -> Unit:
    """The unit for a sum of seconds and its parts."""
    return next((u for u in _UNITS if seconds >= _SEVERAL * u.seconds), _SECONDS)
