"""The `scheduler` section."""

from __future__ import annotations

from math import log
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from search_spaces.domains.conditional import domains_by_name
from search_spaces.errors import suggest
from search_spaces.limits import limit
from search_spaces.spec.base import BEGUN, FROZEN, NamedSection, OneOf

SCHEDULERS: dict[str, str] = {
    "asha": "tuning.search.schedulers.asha:Asha",
    "asha_promote": "tuning.search.schedulers.asha_promote:AshaPromote",
    "hyperband": "tuning.search.schedulers.asha:Hyperband",
    "median": "tuning.search.schedulers.median:MedianStopping",
    "pbt": "tuning.search.schedulers.pbt:Pbt",
    "pb2": "tuning.search.schedulers.pb2:Pb2",
    "none": "tuning.search.schedulers.base:Scheduler",
}
"""Name to `"module:Class"`, which `tuning` resolves on demand. The dict lies here because its keys
are the valid names in a sweep file, and `search_spaces` cannot import `tuning`.
"""
POPULATIONS = ("pbt", "pb2")
PAUSING = ("asha_promote", *POPULATIONS)
"""Schedulers that pause trials, which continue from their checkpoints."""

MAX_RUNGS, MAX_GENERATIONS = 1000, 10_000


class SchedulerSpec(NamedSection):
    """Early stopping, pauses, and copies of weights from other trials."""

    name: Annotated[str, OneOf(("auto", *SCHEDULERS))] = Field(
        "auto",
        description="Scheduler; auto picks one and shows the reason; none stops no trial.",
    )
    time_attr: str = Field(
        "step", min_length=1, description="The reported value that counts steps of progress."
    )
    grace_period: int = Field(
        1, ge=1, description="Steps before a trial may be stopped; the first rung (steps)."
    )
    max_t: int | None = Field(
        None,
        ge=1,
        validate_default=True,
        description="Step at which a trial is complete; optional for none and median (steps).",
    )
    reduction_factor: float = Field(
        3, gt=1, description="One trial in this many continues at each rung; steps grow by it."
    )
    check: Literal["auto", False] = Field(
        "auto",
        description="asha_promote, one metric: spend a small share of the steps to test whether "
        "the rungs keep the trial that ends best, and ignore them while they do not.",
    )
    per: list[str] = Field(
        default_factory=list,
        description="Parameters whose trials are compared only with trials of the same values: "
        "sizes and lengths of a sweep for tune transfer.",
    )
    interval: int | None = Field(
        None, ge=1, description="pbt, pb2: a generation; default: a tenth of max_t (steps)."
    )
    quantile: float = Field(
        0.25, gt=0, le=0.5, description="pbt, pb2: worst share, which copies weights of the best."
    )
    resample: float = Field(
        0.25, ge=0, le=1, description="pbt: chance to resample a parameter, else it is perturbed."
    )
    mutate: list[str] | None = Field(
        None, description="pbt, pb2: parameters that may change; default: the real numbers."
    )

    @model_validator(mode="before")
    @classmethod
    def _keep_rules(cls, values: Any, info: ValidationInfo) -> Any:
        """A sweep that began without `check` goes on without it."""
        began = info.context in (FROZEN, BEGUN) and isinstance(values, dict)
        return {"check": False, **values} if began else values

    @field_validator("max_t")
    @classmethod
    def _complete(cls, max_t: int | None, info: ValidationInfo) -> int | None:
        name, grace = info.data.get("name"), info.data.get("grace_period")
        if name not in (None, "none", "median") and max_t is None:
            raise ValueError(f"{name} needs max_t, the step at which a trial is complete")
        if max_t is not None and grace is not None and max_t < grace:
            raise ValueError(f"must be >= grace_period ({grace}), got {max_t}")
        return max_t

    @model_validator(mode="after")
    def _few_rungs(self) -> Self:
        """Refuse so many rungs or generations that to list them would take long."""
        if self.max_t is None:
            return self
        if log(self.max_t / self.grace_period) / log(self.reduction_factor) > limit(MAX_RUNGS):
            raise ValueError(
                f"reduction_factor {self.reduction_factor} makes more than {MAX_RUNGS} rungs"
            )
        if self.interval is not None and self.max_t / self.interval > limit(MAX_GENERATIONS):
            raise ValueError(f"interval {self.interval} makes more than {MAX_GENERATIONS} of them")
        return self

    @property
    def rung_steps(self) -> tuple[float, ...]:
        """`grace_period * reduction_factor ** k` below `max_t`; empty without `max_t`."""
        steps: list[float] = []
        step: float = self.grace_period
        while self.max_t is not None and step < self.max_t:
            steps.append(step)
            step *= self.reduction_factor
        return tuple(steps)


def check_scheduler(scheduler: SchedulerSpec, info: ValidationInfo) -> SchedulerSpec:
    """Refuse a scheduler that does not fit the sweep's other fields, as far as these are valid.

    Raises:
        ValueError: one line, with the rule and the value.
    """
    sweep = info.data
    if scheduler.name in ("median", "pb2") and isinstance(sweep.get("metrics"), list):
        raise ValueError(f"{scheduler.name} takes one metric; asha_promote takes several")
    if scheduler.name in PAUSING and sweep.get("replicates", 1) > 1:
        raise ValueError(f"{scheduler.name} takes no replicates; asha takes them")
    known = domains_by_name(sweep.get("space", {}))
    if scheduler.per and scheduler.name in ("none", "pbt", "pb2"):
        raise ValueError(f"per: no effect with {scheduler.name}; asha takes it")
    for key, names in {"mutate": scheduler.mutate or [], "per": scheduler.per}.items():
        for name in names if "space" in sweep else ():  # else it has a mistake of its own
            if name not in known:
                raise ValueError(f"{key}: {name!r} is not in the space{suggest(name, known)}")
    return scheduler
