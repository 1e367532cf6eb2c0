"""The `budget` and `prices` sections: what a search may use, and what that costs."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

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


_SPOT = "-spot"
"""Ending of the name of an accelerator: its price on a spot machine."""


class PricesSpec(Section):
    """What the machines cost; for `budget.cost`, and wherever a cost is shown."""

    cpu_hour: float = Field(0.0, ge=0, description="Price of a CPU core for an hour.")
    gpu_hour: float = Field(
        0.0, ge=0, description="Price of a GPU for an hour, if `accelerators` does not name it."
    )
    accelerators: dict[Annotated[str, Field(min_length=1)], Annotated[float, Field(ge=0)]] = Field(
        default_factory=dict,
        description="Price of a GPU for an hour by a part of its name, like {H200: 3.5, H200-spot: "
        "1.4}; the longest that fits counts, with -spot on spot machines. An attempt that runs has "
        "the dearest price.",
    )
    spot_cpu_hour: float | None = Field(
        None, ge=0, description="Price of a CPU core of a spot machine for an hour; none: cpu_hour."
    )
    spot_gpu_hour: float | None = Field(
        None,
        ge=0,
        description="Price of a GPU of a spot machine for an hour, if `accelerators` has no -spot "
        "for it; none: as on other machines.",
    )
    currency: str = Field("USD", min_length=1, max_length=8, description="Its name, for display.")

    @model_validator(mode="after")
    def _has_price(self) -> Self:
        if not (self.cpu_hour or self.gpu_hour or any(self.accelerators.values())):
            raise ValueError("needs cpu_hour, gpu_hour or one of accelerators above zero")
        return self

    def of_cpu(self, spot: bool | None = False) -> float:
        """Price of a CPU core for an hour; on a spot machine if `spot`."""
        return self.spot_cpu_hour if spot and self.spot_cpu_hour is not None else self.cpu_hour

    def of_gpu(self, name: str | None, spot: bool | None = False) -> float:
        """Price of a GPU for an hour.

        Args:
            name: as its driver names it; None if it is not known: the dearest of all.
            spot: whether its machine is a spot machine; None if it is not known: it is not.
        """
        if name is None:
            return max([self.gpu_hour, *self.accelerators.values()])
        if spot:
            if (found := self._named(name, spot=True)) is not None:
                return found
            if self.spot_gpu_hour is not None:
                return self.spot_gpu_hour
        found = self._named(name, spot=False)
        return self.gpu_hour if found is None else found

    def _named(self, name: str, *, spot: bool) -> float | None:
        """The price of the longest key that fits, among those with or without the ending."""
        fitting = [
            key
            for key in self.accelerators
            if key.endswith(_SPOT) is spot and key.removesuffix(_SPOT).lower() in name.lower()
        ]
        return self.accelerators[max(fitting, key=len)] if fitting else None
