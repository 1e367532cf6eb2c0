"""What the broker knows of a lane, and of an attempt."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from results.records.machines import Machine
from trainables.job import Answer, TrialJob
from trainables.launch.events import Event, Leak, RankOutcome

if TYPE_CHECKING:
    from ray.util.placement_group import PlacementGroup


@dataclass
class LaneState:
    """State of one lane.

    Attributes:
        num_taken: jobs that its workers have taken.
        num_forgotten: jobs of earlier sweeps.
    """

    jobs: list[TrialJob | None] = field(default_factory=list)
    is_up: bool = False
    is_working: bool = False
    num_taken: int = 0
    num_forgotten: int = 0
    leak: Leak | None = None
    placement_group: PlacementGroup | None = None
    machines: dict[int, Machine] = field(default_factory=dict)
    outcomes: dict[str, dict[int, RankOutcome]] = field(default_factory=lambda: defaultdict(dict))
    ended: set[str] = field(default_factory=set)
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)


@dataclass
class AttemptState:
    """Messages of one attempt, in both directions; when it was submitted, and when it was taken.

    Attributes:
        reported: its newest report as text: a NaN equals itself there.
        rooms: whether the machine of each rank has memory for the processes of the next attempt.
    """

    submitted: float = field(default_factory=time.monotonic)
    taken: float | None = None
    events: asyncio.Queue[Event] = field(default_factory=asyncio.Queue)
    reported: str = ""
    answer: asyncio.Future[Answer] = field(default_factory=asyncio.Future)
    is_stopped: bool = False
    is_restored: bool = False
    lane: LaneState | None = None
    placement_group: PlacementGroup | None = None
    machines: dict[int, Machine] = field(default_factory=dict)
    rooms: dict[int, bool] = field(default_factory=dict)
