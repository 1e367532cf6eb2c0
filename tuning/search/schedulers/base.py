"""The contract of a scheduler, and the scheduler `none`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from search_spaces.domains.domain import Domain
from search_spaces.spec.scheduler import SchedulerSpec

Scores = tuple[float, ...]
"""One value per objective; higher is better."""


def comparison_steps(spec: SchedulerSpec) -> tuple[float, ...]:
    """Steps at which searchers compare trials, ascending: the rungs and `max_t`.

    Empty if every trial runs to its end.
    """
    if spec.name == "none" or spec.max_t is None:
        return ()
    return (*spec.rung_steps, float(spec.max_t))


@dataclass(frozen=True)
class Era:
    """A section of a trial's training with constant parameters.

    Attributes:
        since: step of the scheduler's clock at which it began.
        params: by dotted name.
        donor: trial whose weights it began with; None for its own.
    """

    since: int
    params: Mapping[str, Any]
    donor: str | None


History = Sequence[Era]
"""A trial's eras, oldest first; at least one."""


class Decision(StrEnum):
    """The next action of a trial after a report."""

    CONTINUE = "continue"
    STOP = "stop"
    PAUSE = "pause"
    COMPLETE = "complete"


@dataclass(frozen=True)
class Exploit:
    """A trial continues from another trial's weights with other parameters.

    Attributes:
        donor: the trial whose newest checkpoint is copied.
        params: its parameters from now on, by dotted name.
    """

    donor: str
    params: dict[str, Any]


class Scheduler:
    """Runs every trial until its end.

    The scheduler `none`, and the base class of the others. It decides after each report, and picks
    the paused trial that continues; not thread-safe. The contract, which
    `tests/tuning/search/test_schedulers.py` checks for every scheduler:

    - All answers depend only on the calls so far: no clock, no global random generator. Replaying
      the recorded reports in order restores a scheduler; `on_trial_resume` is then called
      for the paused trials that have continued.
    - A second report of a step leaves the state as it is. Ties stop no trial.
    - A trial is complete at `max_t`, if it is set.
    - A score that is not a number is the worst one.
    - When no trial runs and none may be proposed, `next_to_resume` returns paused trials until at
      least one trial is complete. Trials that are still paused then may continue in a later session
      with a larger budget.
    """

    def __init__(self, spec: SchedulerSpec, domains: Mapping[str, Domain], seed: int) -> None:
        self._spec, self._domains, self._seed = spec, domains, seed

    @property
    def rungs(self) -> tuple[int, ...]:
        """Steps at which a trial may be paused, ascending; it saves a checkpoint at each.

        Empty for a scheduler that pauses none. `spec.rung_steps` are the steps of all rungs.
        """
        return ()

    @property
    def misleading(self) -> bool:
        """Whether the order at the rungs contradicts the final order; a searcher ignores them."""
        return False

    def decide(self, trial_id: str, step: int, scores: Scores) -> Decision:
        """Decide on a trial that just reported `scores` at `step` of its own clock."""
        max_t = self._spec.max_t
        return Decision.COMPLETE if max_t is not None and step >= max_t else Decision.CONTINUE

    def on_trial_resume(self, trial_id: str) -> None:
        """The trial was started, or is no longer paused."""

    def on_trial_complete(self, trial_id: str) -> None:
        """The trial has ended."""

    def next_to_resume(self, *, more: bool, idle: bool) -> str | None:
        """The paused trial that should continue now; None if there is none.

        Args:
            more: whether a new trial may be proposed instead.
            idle: whether no trial runs or waits to run.
        """
        return None

    def exploit(self, trial_id: str, history: Callable[[str], History]) -> Exploit | None:
        """The weights and parameters with which a paused trial continues; None for its own.

        Args:
            trial_id: returned by `next_to_resume`.
            history: gives that of a trial.
        """
        return None
