"""The limits of a budget, and a tracker that says which limit is reached.

A hard limit also stops running trials at their next report; a soft limit only ends proposals.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from results.analysis.cost import Cost, attempt_cost
from results.records.trial import Attempt, TrialRecord
from search_spaces.errors import UserError
from search_spaces.spec.budget import BudgetSpec, PricesSpec
from tuning.controller.resources.placement import Placement


@dataclass(frozen=True)
class Limit:
    """A limit that was reached.

    Attributes:
        key: its key below `budget` in the sweep file.
        description: the value that was reached, in words.
        hard: whether it also stops running trials.
    """

    key: str
    description: str
    hard: bool = False

    @property
    def summary(self) -> str:
        """The reason of the sweep's end, in words."""
        return self.description if self is USER_STOP else f"budget.{self.key}: {self.description}"

    @property
    def stop_reason(self) -> str:
        """The reason of a stopped trial, for its record."""
        plain = self.key in ("target", USER_STOP.key)
        return self.key if plain else f"{self.key.replace('_', '-')} budget"


USER_STOP = Limit("by hand", "tune stop", hard=True)
"""`tune stop` is no limit of the budget, but ends a sweep in the same way."""


def check_gpu_budget(budget: BudgetSpec, placement: Placement) -> None:
    """Check that trials hold a GPU if the budget is in GPU-hours.

    Raises:
        UserError: trials hold no GPU, so the budget would never be spent.
    """
    if budget.gpu_hours is not None and not placement.gpus_per_worker:
        raise UserError(
            f"budget.gpu_hours: a trial holds no GPU here ({placement.request_summary}), so they "
            f"would never be spent, got {budget.gpu_hours:g}; use budget.cpu_hours or budget.time"
        )


class BudgetTracker:
    """Running sums over a sweep's trials: a check of the limits takes the same time after any
    number of trials.

    The result depends on the newest record and value of each trial, not on the order of the calls:
    a resumed sweep ends where an uninterrupted one does.

    The mode is `min` or `max` of the metric.
    """

    def __init__(self, budget: BudgetSpec, mode: str, prices: PricesSpec | None = None) -> None:
        self._budget, self._prices = budget, prices
        self._sign = 1.0 if mode == "max" else -1.0
        self._spent = Cost()
        self._counted: dict[str, int] = {}  # ended attempts of each trial in `_spent`
        self._running: dict[str, Attempt] = {}
        self._scores: dict[str, float] = {}
        self._on_target: set[str] = set()
        self._end_times: list[_EndTime] = []
        self._finished: set[str] = set()
        self._best: tuple[float, _EndTime] | None = None

    def record_value(self, trial_id: str, value: float, *, feasible: bool = True) -> None:
        """Record a trial's newest finite value of the metric, and whether it may win with it."""
        score = self._scores[trial_id] = self._sign * value
        target = self._budget.target
        if target is not None:
            reached = feasible and score >= self._sign * target
            (self._on_target.add if reached else self._on_target.discard)(trial_id)

    def record_trial(self, record: TrialRecord) -> None:
        """Record a trial's newest record; call it after `record_value` of its newest value."""
        counted = self._counted.get(record.id, 0)
        for attempt in record.attempts[counted:]:
            if attempt.ended is None:
                self._running[record.id] = attempt
                break
            self._running.pop(record.id, None)
            self._spent += attempt_cost(attempt, self._prices)
            counted += 1
        self._counted[record.id] = counted
        if not record.eligible:
            self._on_target.discard(record.id)
        if record.state.finished and record.id not in self._finished:
            self._finished.add(record.id)
            self._record_end(record)

    def limit(self, elapsed_s: float, gain: Callable[[], float | None]) -> Limit | None:
        """The first limit that is reached, hard limits first.

        Args:
            elapsed_s: wall-clock seconds of all sessions.
            gain: upper bound of the improvement that is still possible; None if it is unknown.
        """
        return self.hard_limit(elapsed_s) or next(self._soft(gain), None)

    def hard_limit(self, elapsed_s: float) -> Limit | None:
        """The first hard limit that is reached."""
        return next(self._hard(elapsed_s), None)

    def _hard(self, elapsed_s: float) -> Iterator[Limit]:
        budget = self._budget
        if budget.time is not None and elapsed_s >= budget.time:
            yield Limit("time", f"{budget.time:g} s of wall-clock", hard=True)
        for key in ("cpu_hours", "gpu_hours"):
            limit: float | None = getattr(budget, key)
            if limit is not None and getattr(self.cost, key) >= limit:
                yield Limit(key, f"{limit:g} {key[:3].upper()}-hours", hard=True)
        if budget.cost is not None and (spent := self.cost).cost >= budget.cost:
            yield Limit("cost", f"{budget.cost:g} {spent.currency}", hard=True)
        if self._on_target:
            yield Limit("target", f"{min(self._on_target)} reached {budget.target:g}", hard=True)

    def _soft(self, gain: Callable[[], float | None]) -> Iterator[Limit]:
        budget, trials = self._budget, len(self._counted)
        if budget.trials is not None and trials >= budget.trials:
            yield Limit("trials", f"{trials} trials")
        if budget.patience is not None and self.trials_since_best >= budget.patience:
            yield Limit("patience", f"no new best in {self.trials_since_best} trials")
        if budget.min_improvement is not None:
            left = gain()
            if left is not None and left < budget.min_improvement:
                yield Limit("min_improvement", f"a possible improvement of at most {left:.2g}")

    @property
    def cost(self) -> Cost:
        """The cost of all attempts so far, running ones included."""
        running = (attempt_cost(attempt, self._prices) for attempt in self._running.values())
        return sum(running, self._spent)

    @property
    def trials_since_best(self) -> int:
        """How many trials ended after the best one ended."""
        if self._best is None:
            return len(self._end_times)
        return len(self._end_times) - bisect_right(self._end_times, self._best[1])

    def _record_end(self, record: TrialRecord) -> None:
        last = record.attempts[-1].ended if record.attempts else None
        time = last or record.created, record.number, record.replicate
        insort(self._end_times, time)
        score = self._scores.get(record.id)
        if score is None or not record.eligible:
            return
        if self._best is None or (-score, time) < self._best:
            self._best = -score, time


_EndTime = tuple[float, int, int]
"""When a trial ended, in Unix seconds; its number and replicate break ties."""
