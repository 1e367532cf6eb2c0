"""Early stopping. A scheduler is fed every report in order and forgets nothing else, so feeding it
the recorded reports again brings it back to where it was.
"""

from __future__ import annotations

from enum import StrEnum
from pkgutil import resolve_name
from typing import Protocol

import numpy as np

from search_spaces.schema import SchedulerSpec

SCHEDULERS: dict[str, str] = {
    "asha": "tuning.search.schedulers:Asha",
    "none": "tuning.search.schedulers:RunToTheEnd",
}


class Decision(StrEnum):
    """What becomes of a trial after a report."""

    CONTINUE = "continue"
    STOP = "stop"
    COMPLETE = "complete"


class Scheduler(Protocol):
    """Decides after each report; not thread-safe.

    The decision may depend only on the calls so far. A step that a trial reported before changes
    nothing. Higher values are better.
    """

    def __init__(self, spec: SchedulerSpec) -> None: ...

    def decide(self, trial_id: str, step: int, score: float) -> Decision:
        """What becomes of the trial that just reported `score` at `step` of its own clock."""
        ...


def make_scheduler(spec: SchedulerSpec) -> Scheduler:
    """The scheduler that a sweep names, without any report."""
    scheduler: Scheduler = resolve_name(SCHEDULERS[spec.name])(spec)
    return scheduler


class RunToTheEnd:
    """Stops nothing; a trial is complete at `max_t`, where one is given."""

    def __init__(self, spec: SchedulerSpec) -> None:
        self._max_t = spec.max_t

    def decide(self, trial_id: str, step: int, score: float) -> Decision:
        """CONTINUE, until `max_t`."""
        done = self._max_t is not None and step >= self._max_t
        return Decision.COMPLETE if done else Decision.CONTINUE


class Asha(RunToTheEnd):
    """Asynchronous successive halving, stopping (Li et al. 2020, "A System for Massively Parallel
    Hyperparameter Tuning").

    Rungs are at `grace_period * reduction_factor ** k` below `max_t`. The first report at or
    beyond a rung is recorded there; the trial stops when it is not in the best
    `1 / reduction_factor` of what the rung had recorded before. Decides as one bracket of Ray
    Tune's `AsyncHyperBandScheduler` does, for trials that report between any two rungs.
    """

    def __init__(self, spec: SchedulerSpec) -> None:
        super().__init__(spec)
        assert spec.max_t is not None, "the schema demands max_t for asha"
        self._keep = 1 / spec.reduction_factor
        self._rungs: dict[float, dict[str, float]] = {}
        milestone: float = spec.grace_period
        while milestone < spec.max_t:
            self._rungs[milestone] = {}
            milestone *= spec.reduction_factor

    def decide(self, trial_id: str, step: int, score: float) -> Decision:
        """STOP at a rung where the trial is not among the best; COMPLETE at `max_t`."""
        if super().decide(trial_id, step, score) is Decision.COMPLETE:
            return Decision.COMPLETE
        for milestone, rung in sorted(self._rungs.items(), reverse=True):
            if step >= milestone:
                return self._at_rung(rung, trial_id, score)
        return Decision.CONTINUE

    def _at_rung(self, rung: dict[str, float], trial_id: str, score: float) -> Decision:
        if trial_id in rung:
            return Decision.CONTINUE
        cutoff = np.percentile(list(rung.values()), (1 - self._keep) * 100) if rung else score
        rung[trial_id] = score
        return Decision.STOP if score < cutoff else Decision.CONTINUE
