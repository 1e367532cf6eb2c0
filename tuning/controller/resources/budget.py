"""The limits of a budget, and a tracker that says which limit is reached.

A hard limit also stops running trials at their next report; a soft limit only ends proposals.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from results.records.trial import Attempt, TrialRecord
from search_spaces.errors import UserError
from search_spaces.spec.sweep import BudgetSpec
from tuning.controller.resources.placement import Placement


@dataclass(frozen=True)
class Cost:
    """What trials held, times how long they held it."""

    cpu_hours: float = 0.0
    gpu_hours: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.cpu_hours + other.cpu_hours, self.gpu_hours + other.gpu_hours)

    def __str__(self) -> str:
        text = f"{_hours(self.cpu_hours)} CPU-hours"
        return text + f", {_hours(self.gpu_hours)} GPU-hours" * bool(self.gpu_hours)


@dataclass(frozen=True)
class Limit:
    """A limit that was reached.

    Attributes:
        key: below `budget` in the sweep file.
        description: what was reached, for the summary.
        hard: whether it ends running trials.
    """

    key: str
    description: str
    hard: bool = False

    @property
    def summary(self) -> str:
        """Why the sweep is over, in words."""
        return self.description if self is USER_STOP else f"budget.{self.key}: {self.description}"

    @property
    def stop_reason(self) -> str:
        """Why it stops a trial, for the trial's record."""
        plain = self.key in ("target", USER_STOP.key)
        return self.key if plain else f"{self.key.replace('_', '-')} budget"


USER_STOP = Limit("by hand", "tune stop", hard=True)
"""Not a limit of the budget, but it ends a sweep in the same way."""


def attempt_cost(attempt: Attempt) -> Cost:
    """What an attempt costs, up to now while it runs."""
    hours = attempt.seconds / 3600
    return Cost(hours * attempt.cpus, hours * attempt.gpus)


def total_cost(records: Iterable[TrialRecord]) -> Cost:
    """What all attempts of the trials cost so far, running ones included."""
    return sum((attempt_cost(a) for r in records for a in r.attempts), Cost())


def check_gpu_budget(budget: BudgetSpec, placement: Placement) -> None:
    """Refuse a budget in GPU-hours where trials hold no GPU: it would never be spent.

    Raises:
        UserError: it is so.
    """
    if budget.gpu_hours is not None and not placement.gpus_per_worker:
        raise UserError(
            f"budget.gpu_hours: a trial holds no GPU here ({placement.request_summary}), so they "
            f"would never be spent, got {budget.gpu_hours:g}; use budget.cpu_hours or budget.time"
        )


class BudgetTracker:
    """Running sums over a sweep's trials.

    What it says depends on the newest record and value of each trial, not on the order in which it
    was told of them: a resumed sweep's is that of an uninterrupted one.

    Args:
        budget: the limits.
        mode: `min` or `max` of the metric.
    """

    def __init__(self, budget: BudgetSpec, mode: str) -> None:
        self._budget = budget
        self._sign = 1.0 if mode == "max" else -1.0
        self._spent = Cost()
        self._booked: dict[str, int] = {}
        self._open: dict[str, Attempt] = {}
        self._gains: dict[str, float] = {}
        self._on_target: set[str] = set()
        self._order: list[_Moment] = []
        self._over: set[str] = set()
        self._best: tuple[float, _Moment] | None = None

    def record_value(self, trial_id: str, value: float) -> None:
        """A trial's newest finite value of the metric."""
        gain = self._gains[trial_id] = self._sign * value
        target = self._budget.target
        if target is not None:
            good = gain >= self._sign * target
            (self._on_target.add if good else self._on_target.discard)(trial_id)

    def record_trial(self, record: TrialRecord) -> None:
        """A trial's newest record, told after its newest value."""
        booked = self._booked.get(record.id, 0)
        for attempt in record.attempts[booked:]:
            if attempt.ended is None:
                self._open[record.id] = attempt
                break
            self._open.pop(record.id, None)
            self._spent += attempt_cost(attempt)
            booked += 1
        self._booked[record.id] = booked
        if not record.eligible:
            self._on_target.discard(record.id)
        if record.state.finished and record.id not in self._over:
            self._over.add(record.id)
            self._ended(record)

    def limit(self, elapsed_s: float, gain: Callable[[], float | None]) -> Limit | None:
        """The first limit that is reached, hard ones first.

        Args:
            elapsed_s: wall-clock seconds of all sessions.
            gain: what the search may still improve the metric by, where that is known.
        """
        return self.hard_limit(elapsed_s) or next(self._soft(gain), None)

    def hard_limit(self, elapsed_s: float) -> Limit | None:
        """The first limit that is reached and ends what runs, too."""
        return next(self._hard(elapsed_s), None)

    def _hard(self, elapsed_s: float) -> Iterator[Limit]:
        budget = self._budget
        if budget.time is not None and elapsed_s >= budget.time:
            yield Limit("time", f"{budget.time:g} s of wall-clock", hard=True)
        for key in ("cpu_hours", "gpu_hours"):
            limit: float | None = getattr(budget, key)
            if limit is not None and getattr(self.cost, key) >= limit:
                yield Limit(key, f"{limit:g} {key[:3].upper()}-hours", hard=True)
        if self._on_target:
            said = f"{min(self._on_target)} reached {budget.target:g}"
            yield Limit("target", said, hard=True)

    def _soft(self, gain: Callable[[], float | None]) -> Iterator[Limit]:
        budget, trials = self._budget, len(self._booked)
        if budget.trials is not None and trials >= budget.trials:
            yield Limit("trials", f"{trials} trials")
        if budget.patience is not None and self.trials_since_best >= budget.patience:
            yield Limit("patience", f"no new best in {self.trials_since_best} trials")
        if budget.min_improvement is not None:
            left = gain()
            if left is not None and left < budget.min_improvement:
                yield Limit("min_improvement", f"at most {left:.2g} is left to gain")

    @property
    def cost(self) -> Cost:
        """What all attempts cost so far, those that run (as many as there are lanes) included."""
        return sum((attempt_cost(attempt) for attempt in self._open.values()), self._spent)

    @property
    def trials_since_best(self) -> int:
        """How many trials ended, in the order in which they did, since the best one of them."""
        if self._best is None:
            return len(self._order)
        return len(self._order) - bisect_right(self._order, self._best[1])

    def _ended(self, record: TrialRecord) -> None:
        last = record.attempts[-1].ended if record.attempts else None
        moment = last or record.created, record.number, record.replicate
        insort(self._order, moment)
        gain = self._gains.get(record.id)
        if gain is not None and record.eligible and self._is_best(gain, moment):
            self._best = gain, moment

    def _is_best(self, gain: float, moment: _Moment) -> bool:
        """Better than the best one, or as good and earlier."""
        if self._best is None:
            return True
        return gain > self._best[0] or (gain == self._best[0] and moment < self._best[1])


_Moment = tuple[float, int, int]
"""When a trial ended, in Unix seconds; its number and replicate tell apart what ended together."""


def _hours(hours: float) -> str:
    return f"{hours:.1f}" if hours >= 10 else f"{hours:.2g}"
