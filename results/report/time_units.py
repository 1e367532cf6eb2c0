"""Choose the unit in which to show a time: hours, minutes or seconds."""

from __future__ import annotations

from dataclasses import dataclass

_MINIMUM = 2
"""A unit is used for times of at least this many of it; shorter times use the next smaller unit."""


@dataclass(frozen=True)
class TimeUnit:
    """A unit of time.

    Attributes:
        name: plural, as in `worker-hours`.
        symbol: written after a number.
        seconds: in one unit.
    """

    name: str
    symbol: str
    seconds: float

    def format(self, seconds: float) -> str:
        """A time in this unit with three digits, without the symbol."""
        return f"{seconds / self.seconds:.3g}"


_UNITS = (TimeUnit("hours", "h", 3600.0), TimeUnit("minutes", "min", 60.0))
_SECONDS = TimeUnit("seconds", "s", 1.0)


def unit_for(seconds: float) -> TimeUnit:
    """The unit for a total time and its parts."""
    return next((u for u in _UNITS if seconds >= _MINIMUM * u.seconds), _SECONDS)
