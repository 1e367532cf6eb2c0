"""What a scheduler is: the contract, and the one that stops nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from search_spaces.domains.domain import Domain
from search_spaces.spec.sweep import SchedulerSpec

Scores = tuple[float, ...]
"""One value per objective; higher is better."""
Rung = dict[str, Scores]
"""Scores of the trials at a rung, in the order in which they came."""


def comparison_steps(spec: SchedulerSpec) -> tuple[float, ...]:
    """Steps at which searchers compare trials, ascending: the rungs and `max_t`.

    Empty if every trial runs to its end.
    """
    if spec.name == "none" or spec.max_t is None:
        return ()
    return (*spec.rung_steps, float(spec.max_t))


@dataclass(frozen=True)
class Era:
    """A part of a trial's life: since which step, with which parameters (by dotted name), and
    whose weights it began with (None: its own).
    """

    since: int
    params: Mapping[str, Any]
    donor: str | None


History = Sequence[Era]
"""A trial's eras, oldest first; there is at least one."""


class Decision(StrEnum):
    """What becomes of a trial after a report."""

    CONTINUE = "continue"
    STOP = "stop"
    PAUSE = "pause"
    COMPLETE = "complete"


@dataclass(frozen=True)
class Exploit:
    """A trial goes on from another's weights, with other parameters.

    Attributes:
        donor: the trial whose newest checkpoint it takes.
        params: its parameters from now on, by dotted name.
    """

    donor: str
    params: dict[str, Any]


class Scheduler:
    """Decides after each report, and which paused trial goes on; not thread-safe.

    The contract, which `tests/tuning/search/test_schedulers.py` holds every entry to:

    - All answers depend on the calls so far alone: no clock, no global generator. Feeding the
      recorded reports again, in their order, brings a scheduler back; what it paused and is going
      on since is told by `on_trial_resume`.
    - A step that a trial reported before changes nothing.
    - A trial is complete at `max_t`, where one is given.
    - A score that is no number is the worst one.
    - When nothing runs and nothing may be proposed, `next_to_resume` gives the trials that are yet to go on,
      one after another, until one is complete at least; what it then leaves paused may be called in
      a session with more to propose.

    This class itself is the scheduler `none`.
    """

    def __init__(self, spec: SchedulerSpec, domains: Mapping[str, Domain], seed: int) -> None:
        self._spec, self._domains, self._seed = spec, domains, seed

    @property
    def rungs(self) -> tuple[int, ...]:
        """Steps, ascending, at which a trial may be paused: it saves a checkpoint at each."""
        return ()

    def decide(self, trial_id: str, step: int, scores: Scores) -> Decision:
        """What becomes of the trial that just reported `scores` at `step` of its own clock."""
        max_t = self._spec.max_t
        return Decision.COMPLETE if max_t is not None and step >= max_t else Decision.CONTINUE

    def on_trial_resume(self, trial_id: str) -> None:
        """The trial was begun, or is no longer paused."""

    def on_trial_complete(self, trial_id: str) -> None:
        """The trial ended; it will report no more."""

    def next_to_resume(self, *, more: bool, idle: bool) -> str | None:
        """The paused trial that should go on now; None when there is none.

        Args:
            more: a new trial may be proposed instead.
            idle: no trial runs or waits to run.
        """
        return None

    def exploit(self, trial_id: str, histories: Mapping[str, History]) -> Exploit | None:
        """Whether the paused trial, which is called to go on, does so from another's weights.

        Args:
            trial_id: what `next_to_resume` gave.
            histories: of every trial.
        """
        return None
