"""Outcomes of a trial on each rank of a lane, and the events that inform the driver."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from results.records.machines import Machine
from results.records.trial import Report


@dataclass(frozen=True)
class Reported:
    """A trial reported and waits for an answer.

    Attributes:
        waited: seconds until workers took the attempt; so in all events.
    """

    report: Report
    waited: float = field(default=0.0, compare=False)


@dataclass(frozen=True)
class Ended:
    """The trial's code returned on every rank.

    Attributes:
        pruned: why the code gave the trial up itself; empty if it did not.
    """

    pruned: str = ""
    waited: float = field(default=0.0, compare=False)


@dataclass(frozen=True)
class Failed:
    """The trial's processes ended before the trial did.

    Attributes:
        reason: one line: which rank failed, and how.
        began: whether the trial had begun; if not, it is not the cause.
        came_up: whether its processes ever started; if not, other processes would not start either.
        machines: the machine of each rank, as far as known.
    """

    reason: str
    began: bool = True
    came_up: bool = True
    machines: dict[int, Machine] = field(default_factory=dict)
    waited: float = field(default=0.0, compare=False)


Event = Reported | Ended | Failed


@dataclass(frozen=True)
class RankOutcome:
    """The outcome of a trial on one rank.

    Attributes:
        failure: one line, or None when the trial's code returned.
        fatal: the process cannot be used again (its device may be in any state).
        leak: one line about what the trial left behind, if it is too much.
        pruned: see `Ended`.
        again: whether the failure may be that of an earlier trial, so that it does not count.
        renew: whether the process group is not the one with which the trial began.
    """

    failure: str | None = None
    fatal: bool = False
    leak: str | None = None
    pruned: str = ""
    again: bool = False
    renew: bool = False


class LaneAction(StrEnum):
    """What a lane does after a trial, the same on every rank."""

    CONTINUE = "take the next trial"
    RENEW_GROUP = "renew the process group, then take the next trial"
    RETIRE = "end as after the last trial"
    ABORT = "end as failed"


@dataclass(frozen=True)
class Leak:
    """Why a lane was retired.

    Attributes:
        key: of the attempt (`TrialJob.key`).
        message: what it left behind.
        is_certain: whether that is more than a guess after a failure.
    """

    key: str
    message: str
    is_certain: bool = True


def merge_outcomes(outcomes: Mapping[int, RankOutcome], machines: dict[int, Machine]) -> Event:
    """Merge the outcomes of all ranks into the trial's last event."""
    failures = [f"rank {r}: {o.failure}" for r, o in sorted(outcomes.items()) if o.failure]
    if failures:
        again = any(outcome.again for outcome in outcomes.values())
        return Failed(failures[0], began=not again, machines=machines)
    return Ended(next((o.pruned for o in outcomes.values() if o.pruned), ""))


def first_leak(outcomes: Mapping[int, RankOutcome]) -> str | None:
    """The lowest rank that leaked memory, and its message."""
    leaks = [f"rank {r}: {o.leak}" for r, o in sorted(outcomes.items()) if o.leak]
    return leaks[0] if leaks else None


def lane_action(outcomes: Mapping[int, RankOutcome]) -> LaneAction:
    """The lane's next action after a trial with these outcomes."""
    if any(o.fatal for o in outcomes.values()):
        return LaneAction.ABORT
    if first_leak(outcomes):
        return LaneAction.RETIRE
    renews = any(o.renew or (o.failure and len(outcomes) > 1) for o in outcomes.values())
    return LaneAction.RENEW_GROUP if renews else LaneAction.CONTINUE
