"""What an attempt says to whoever drives it."""

from __future__ import annotations

from dataclasses import dataclass, field

from results.records.machines import Machine
from results.records.trial import Report


@dataclass(frozen=True)
class Reported:
    """A trial reported and waits for an answer."""

    report: Report


@dataclass(frozen=True)
class Ended:
    """The trial's code returned on every rank."""


@dataclass(frozen=True)
class Failed:
    """The trial's processes ended before it did.

    Attributes:
        reason: one line: which rank, and how.
        began: whether the trial had begun; if not, it is not to blame.
        came_up: whether its processes ever did; if not, the next ones will not either.
        machines: on which each rank was, as far as that is known.
    """

    reason: str
    began: bool = True
    came_up: bool = True
    machines: dict[int, Machine] = field(default_factory=dict)


Event = Reported | Ended | Failed
