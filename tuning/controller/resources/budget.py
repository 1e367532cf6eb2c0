"""Limits of a budget and what counts towards them; `tuning.controller.resources.budget_tracker` says which is reached.

A hard limit ends what runs too, at its next report; after a soft one nothing more is proposed.
"""

from __future__ import annotations

from collections.abc import Iterable
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


def held_for(attempt: Attempt) -> Cost:
    """What an attempt costs, up to now while it runs."""
    hours = attempt.seconds / 3600
    return Cost(hours * attempt.cpus, hours * attempt.gpus)


def spent(records: Iterable[TrialRecord]) -> Cost:
    """What all attempts of the trials cost so far, running ones included."""
    return sum((held_for(a) for r in records for a in r.attempts), Cost())


def check_spendable(budget: BudgetSpec, placement: Placement) -> None:
    """Refuse a budget in GPU-hours where trials hold no GPU: it would never be spent.

    Raises:
        UserError: it is so.
    """
    if budget.gpu_hours is not None and not placement.gpus_per_worker:
        raise UserError(
            f"budget.gpu_hours: a trial holds no GPU here ({placement.need}), so they would never"
            f" be spent, got {budget.gpu_hours:g}; use budget.cpu_hours or budget.time"
        )


def _hours(hours: float) -> str:
    return f"{hours:.1f}" if hours >= 10 else f"{hours:.2g}"
