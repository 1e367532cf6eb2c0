"""Which limit of its budget a sweep has reached: arithmetic over the trials' records.

A hard limit ends what runs too, at its next report; after a soft one nothing more is proposed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from results.records import TrialRecord
from search_spaces.errors import UserError
from search_spaces.schema import BudgetSpec
from tuning.execution.placement import Placement

Value = Callable[[str], float | None]
"""A trial's newest finite value of the metric, by the trial's id."""


@dataclass(frozen=True)
class Cost:
    """What trials held, times how long they held it."""

    cpu_hours: float = 0.0
    gpu_hours: float = 0.0

    def __str__(self) -> str:
        text = f"{_hours(self.cpu_hours)} CPU-hours"
        return text + f", {_hours(self.gpu_hours)} GPU-hours" * bool(self.gpu_hours)


@dataclass(frozen=True)
class Limit:
    """A limit that was reached.

    Attributes:
        key: below `budget` in the sweep file.
        said: what was reached, for the summary.
        hard: whether it ends running trials.
    """

    key: str
    said: str
    hard: bool = False

    @property
    def why(self) -> str:
        """Why the sweep is over, in words."""
        return self.said if self is BY_HAND else f"budget.{self.key}: {self.said}"

    @property
    def cause(self) -> str:
        """Why it stops a trial, for the trial's record."""
        plain = self.key in ("target", BY_HAND.key)
        return self.key if plain else f"{self.key.replace('_', '-')} budget"


BY_HAND = Limit("by hand", "tune stop", hard=True)
"""Not a limit of the budget, but it ends a sweep in the same way."""


def spent(records: Iterable[TrialRecord]) -> Cost:
    """What all attempts of the trials cost so far, running ones included."""
    used = [(a.seconds / 3600, a) for r in records for a in r.attempts]
    return Cost(sum(h * a.cpus for h, a in used), sum(h * a.gpus for h, a in used))


def limit_reached(
    budget: BudgetSpec,
    mode: str,
    records: Mapping[str, TrialRecord],
    value: Value,
    elapsed_s: float,
    gain: Callable[[], float | None] = lambda: None,
) -> Limit | None:
    """The first limit that is reached, hard ones first.

    Args:
        budget: the limits.
        mode: `min` or `max` of the metric.
        records: every trial by id.
        value: of a trial.
        elapsed_s: wall-clock seconds of all sessions.
        gain: what the search may still improve the metric by, where that is known.
    """
    sign = 1.0 if mode == "max" else -1.0
    hard = _hard(budget, sign, records, value, elapsed_s)
    return next(hard, None) or next(_soft(budget, sign, records, value, gain), None)


def check_spendable(budget: BudgetSpec, placement: Placement) -> None:
    """Refuse a budget in GPU-hours where trials hold no GPU: it would never be spent.

    Raises:
        UserError: it is so.
    """
    if budget.gpu_hours is not None and not placement.gpus:
        raise UserError(
            f"budget.gpu_hours: a trial holds no GPU here ({placement.need}), so they would never"
            f" be spent, got {budget.gpu_hours:g}; use budget.cpu_hours or budget.time"
        )


def _hard(
    budget: BudgetSpec,
    sign: float,
    records: Mapping[str, TrialRecord],
    value: Value,
    elapsed_s: float,
) -> Iterator[Limit]:
    if budget.time is not None and elapsed_s >= budget.time:
        yield Limit("time", f"{budget.time:g} s of wall-clock", hard=True)
    for key in ("cpu_hours", "gpu_hours"):
        limit: float | None = getattr(budget, key)
        if limit is not None and getattr(spent(records.values()), key) >= limit:
            yield Limit(key, f"{limit:g} {key[:3].upper()}-hours", hard=True)
    if budget.target is not None:
        for trial_id, record in records.items():
            found = value(trial_id) if record.eligible else None
            if found is not None and sign * found >= sign * budget.target:
                yield Limit("target", f"{trial_id} reached {budget.target:g}", hard=True)


def _soft(
    budget: BudgetSpec,
    sign: float,
    records: Mapping[str, TrialRecord],
    value: Value,
    gain: Callable[[], float | None],
) -> Iterator[Limit]:
    if budget.trials is not None and len(records) >= budget.trials:
        yield Limit("trials", f"{len(records)} trials")
    if budget.patience is not None:
        waited = _without_a_new_best(records, value, sign)
        if waited >= budget.patience:
            yield Limit("patience", f"no new best in {waited} trials")
    if budget.min_improvement is not None:
        left = gain()
        if left is not None and left < budget.min_improvement:
            yield Limit("min_improvement", f"at most {left:.2g} is left to gain")


def _without_a_new_best(records: Mapping[str, TrialRecord], value: Value, sign: float) -> int:
    """How many trials ended, in the order in which they did, since the best one of them."""
    best, waited = -float("inf"), 0
    for record in sorted((r for r in records.values() if r.state.finished), key=_ended):
        found = value(record.id) if record.eligible else None
        if found is not None and sign * found > best:
            best, waited = sign * found, 0
        else:
            waited += 1
    return waited


def _ended(record: TrialRecord) -> tuple[float, int]:
    last = record.attempts[-1].ended if record.attempts else None
    return last or record.created, record.number


def _hours(hours: float) -> str:
    return f"{hours:.1f}" if hours >= 10 else f"{hours:.2g}"
