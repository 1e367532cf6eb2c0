"""Says how far a number of like steps is, how long it took, and how long the rest may take."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta

PrintLine = Callable[[str], None]
"""Prints a line for the user."""


@dataclass
class TrainingProgress:
    """Counts steps, and prints lines like `3 of 9, 0:00:12, about 0:00:24 left: t0003 trained`.

    The first step does not count for the estimate: processes start, and modules are imported.

    Attributes:
        total: number of steps.
        print_line: prints a line.
        every_s: seconds between two lines; steps in between are only counted.
    """

    total: int
    print_line: PrintLine
    every_s: float = 0.0
    done: int = 0
    _began: float = field(default_factory=time.monotonic)
    _first: float = 0.0
    _printed: float = field(default_factory=time.monotonic)

    def step(self, what: str) -> None:
        """A step is done."""
        self.done += 1
        now = time.monotonic()
        self._first = self._first or now
        if now - self._printed < self.every_s:
            return
        left = (self.total - self.done) * (now - self._first) / max(1, self.done - 1)
        self._printed, rest = now, f", about {_span(left)} left" if round(left) > 0 else ""
        self.print_line(f"{self.done} of {self.total}, {_span(now - self._began)}{rest}: {what}")


def _span(seconds: float) -> timedelta:
    return timedelta(seconds=round(seconds))
