"""How a trial ended on the ranks of a lane, and what that means for the trial and for the lane."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from results.records.machines import Machine
from trainables.launch.events import Ended, Event, Failed

if TYPE_CHECKING:
    from ray.util.placement_group import PlacementGroup


@dataclass(frozen=True)
class Outcome:
    """How a trial ended on one rank.

    Attributes:
        failure: one line, or None when its code returned.
        fatal: the process is of no more use (its device may be in any state).
        leak: one line on memory that the trial left behind, if that is too much.
    """

    failure: str | None = None
    fatal: bool = False
    leak: str | None = None


class Next(StrEnum):
    """What a lane does after a trial, the same on every rank."""

    GO_ON = "go on"
    RENEW = "renew the process group, then go on"
    RETIRE = "end as after the last trial"
    LEAVE = "leave"


@dataclass(frozen=True)
class Leak:
    """Why a lane was retired: which attempt (`TrialJob.key`) left memory behind, and how much."""

    key: str
    said: str


@dataclass(frozen=True)
class ReleasedLane:
    """What is left of a lane that has gone."""

    leak: Leak | None = None
    group: PlacementGroup | None = None


def event_of(outcomes: Mapping[int, Outcome], machines: dict[int, Machine]) -> Event:
    """The trial's last word, of all ranks."""
    failures = [f"rank {r}: {o.failure}" for r, o in sorted(outcomes.items()) if o.failure]
    return Failed(failures[0], machines=machines) if failures else Ended()


def leak_of(outcomes: Mapping[int, Outcome]) -> str | None:
    """What the first rank says that has too much memory left behind."""
    leaks = [f"rank {r}: {o.leak}" for r, o in sorted(outcomes.items()) if o.leak]
    return leaks[0] if leaks else None


def next_of(outcomes: Mapping[int, Outcome]) -> Next:
    """What the lane does now."""
    if any(o.fatal for o in outcomes.values()):
        return Next.LEAVE
    if leak_of(outcomes):
        return Next.RETIRE
    return Next.RENEW if any(o.failure for o in outcomes.values()) else Next.GO_ON
