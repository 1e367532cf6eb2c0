"""The `budget` section."""

from __future__ import annotations

from pydantic import Field

from search_spaces.spec.base import Seconds, Section

HARD = ("trials", "time", "cpu_hours", "gpu_hours", "cost")
"""Limits that every sweep reaches; at least one of them is required."""
ONE_OBJECTIVE = ("target", "patience", "min_improvement")
"""Limits that refer to the best value, which several objectives do not have."""


class BudgetSpec(Section):
    """Limits of the search, which ends at the first one that is reached."""

    trials: int | None = Field(
        None, ge=1, description="Trials in total; optional if the space has only grids (trials)."
    )
    time: Seconds | None = Field(
        None, description="Wall-clock time of all runs of the sweep (seconds, or '90s', '2h')."
    )
    cpu_hours: float | None = Field(
        None, gt=0, description="CPU cores times the hours that trials held them (core-hours)."
    )
    gpu_hours: float | None = Field(
        None, gt=0, description="GPUs times the hours that trials held them (GPU-hours)."
    )
    cost: float | None = Field(
        None, gt=0, description="Cost of all trials, by `prices` (their currency)."
    )
    target: float | None = Field(
        None, description="The search ends when a trial's metric is this good (metric's unit)."
    )
    patience: int | None = Field(
        None, ge=1, description="Trials that may end in a row without a new best value (trials)."
    )
    min_improvement: float | None = Field(
        None,
        gt=0,
        description="The search ends when the best value can improve by less than this, by "
        "Optuna's regret bound after 20 completed trials or more (metric's unit).",
    )

    @property
    def bounded(self) -> bool:
        """Whether a limit is set that every sweep reaches."""
        return any(getattr(self, name) is not None for name in HARD)
