"""What trials cost: CPU-hours, GPU-hours, and their price."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from results.paths import SweepPaths
from results.records.failures import Cause
from results.records.trial import Attempt, Report, TrialRecord, TrialState
from results.sweep_folder.lock import current_driver
from search_spaces.spec.budget import PricesSpec


@dataclass(frozen=True)
class Cost:
    """CPUs and GPUs that trials held, times the hours for which they held them.

    Attributes:
        cost: their price, in the currency; 0 without prices.
    """

    cpu_hours: float = 0.0
    gpu_hours: float = 0.0
    cost: float = 0.0
    currency: str = field(default="", compare=False)

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.cpu_hours + other.cpu_hours,
            self.gpu_hours + other.gpu_hours,
            self.cost + other.cost,
            self.currency or other.currency,
        )

    def __mul__(self, factor: float) -> Cost:
        hours = self.cpu_hours * factor, self.gpu_hours * factor
        return Cost(*hours, self.cost * factor, self.currency)

    def __str__(self) -> str:
        text = f"{_hours(self.cpu_hours)} CPU-hours"
        text += f", {_hours(self.gpu_hours)} GPU-hours" if self.gpu_hours else ""
        return text + (f", {self.price}" if self.currency else "")

    @property
    def price(self) -> str:
        """The price with its currency, such as `3.20 USD`."""
        return f"{self.cost:,.2f} {self.currency}"


WASTED = {"stopped": "stopped early", "failed": "failed", "preempted": "preempted"}
"""Reasons why a cost was of no use, and how they are said."""


@dataclass(frozen=True)
class CostShares:
    """The cost of a sweep by what came of it.

    Attributes:
        useful: of trials that completed, wait or run.
        stopped: of trials that were stopped early.
        failed: of attempts that failed or lost their machine, and of failed trials.
        preempted: of attempts that were preempted.
    """

    useful: Cost
    stopped: Cost
    failed: Cost
    preempted: Cost

    @property
    def total(self) -> Cost:
        """All of it."""
        return self.useful + self.stopped + self.failed + self.preempted

    @property
    def wasted(self) -> dict[str, Cost]:
        """What was of no use, by reason."""
        return {why: getattr(self, why) for why in WASTED}

    def __str__(self) -> str:
        lost = [f"{share.price} {WASTED[why]}" for why, share in self.wasted.items() if share.cost]
        return f"{self.total}, of which {' and '.join(lost)}" if lost else str(self.total)


def attempt_cost(attempt: Attempt, prices: PricesSpec | None = None) -> Cost:
    """The cost of an attempt; of a running one, until now."""
    hours = attempt.held_seconds / 3600
    cost = Cost(hours * attempt.cpus, hours * attempt.gpus)
    if prices is None:
        return cost
    gpu_hour = prices.of_gpu(attempt.accelerator, attempt.spot)
    price = cost.cpu_hours * prices.of_cpu(attempt.spot) + cost.gpu_hours * gpu_hour
    return replace(cost, cost=price, currency=prices.currency)


def total_cost(records: Iterable[TrialRecord], prices: PricesSpec | None = None) -> Cost:
    """The cost of all attempts of the trials so far, running ones included."""
    return sum((attempt_cost(a, prices) for r in records for a in r.attempts), Cost())


def cost_shares(records: Iterable[TrialRecord], prices: PricesSpec | None = None) -> CostShares:
    """The cost of trials by what came of it."""
    shares = dict.fromkeys(("useful", *WASTED), Cost())
    for record in records:
        for attempt in record.attempts:
            why = "stopped" if record.state is TrialState.STOPPED else "useful"
            if attempt.cause is Cause.PREEMPTION:
                why = "preempted"
            elif attempt.error is not None or record.state is TrialState.FAILED:
                why = "failed"
            shares[why] += attempt_cost(attempt, prices)
    return CostShares(**shares)


def close_silent_attempts(
    paths: SweepPaths, trials: Iterable[tuple[TrialRecord, Sequence[Report]]]
) -> list[tuple[TrialRecord, Sequence[Report]]]:
    """Trials with their reports, for display: attempts that a dead driver left open have ended."""
    if current_driver(paths.lock):
        return list(trials)
    return [(closed(r, last_activity(r, reports)), reports) for r, reports in trials]


def closed(record: TrialRecord, at: float) -> TrialRecord:
    """The record; its newest attempt ended then, in Unix seconds, if it was open."""
    if not record.attempts or record.attempts[-1].ended is not None:
        return record
    *earlier, last = record.attempts
    ended = last.model_copy(update={"ended": max(last.started, at)})
    return record.model_copy(update={"attempts": (*earlier, ended)})


def last_activity(record: TrialRecord, reports: Iterable[Report]) -> float:
    """Time of a trial's last start or report, in Unix seconds; 0 if there was none."""
    return max([a.started for a in record.attempts] + [r.time for r in reports], default=0.0)


def _hours(hours: float) -> str:
    return f"{hours:.1f}" if hours >= 10 else f"{hours:.2g}"
