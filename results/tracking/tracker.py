"""Who else learns of a sweep, beside its folder; what they are told, and when."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True)
class SweepFacts:
    """What is said of the sweep as a whole.

    Attributes:
        key: names the sweep for good, wherever its folder is moved.
        name: of the sweep.
        tags, params: of the sweep's own run.
        artifacts: file name to text, kept with it.
    """

    key: str
    name: str
    tags: Mapping[str, str]
    params: Mapping[str, object]
    artifacts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Ending:
    """How a session ended: FINISHED, KILLED (interrupted) or FAILED, and the sweep's metrics."""

    status: str
    metrics: Mapping[str, float]


class Tracker(Protocol):
    """Brings elsewhere what the sweep folder says. Methods return at once and never raise."""

    def changed(self, trial_id: str, *, reported: bool) -> None:
        """There is something new in a trial's files; `reported` if it is a report."""

    def close(self, ending: Ending, timeout: float) -> str | None:
        """The session ends: deliver the rest, for about `timeout` seconds.

        Returns:
            One line on what was not delivered, and how it will be; None when all was.
        """


class NullTracker:
    """Tells nobody."""

    def changed(self, trial_id: str, *, reported: bool) -> None:
        """Nothing."""

    def close(self, ending: Ending, timeout: float) -> None:
        """Nothing."""
