"""The sweep file's schema: what may stand in the YAML, with types, defaults and descriptions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from search_spaces.domains import Domain
from search_spaces.duration import PATTERN, parse_duration
from search_spaces.environment import expand, original
from search_spaces.plain import merge, nested
from search_spaces.space import check_fixed, flatten, parse_space

ENV_FIELDS = frozenset({("storage",), ("tracking", "uri")})
"""The only fields in which `${ENV}` is expanded."""

Seconds = Annotated[
    float,
    BeforeValidator(parse_duration),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number", "exclusiveMinimum": 0},
                {"type": "string", "pattern": PATTERN, "examples": ["90s", "5m", "2h", "1h30m"]},
            ]
        }
    ),
]
EnvText = Annotated[
    str, Field(min_length=1), AfterValidator(expand), PlainSerializer(original, return_type=str)
]


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class SearchSpec(_Section):
    """How configurations are proposed."""

    name: Literal["tpe", "random"] = Field("tpe", description="Searcher.")
    startup_trials: int = Field(
        10, ge=1, description="Random trials before the model proposes any (trials)."
    )


class SchedulerSpec(_Section):
    """Which trials are stopped early."""

    name: Literal["asha", "none"] = Field("asha", description="Scheduler; none stops no trial.")
    time_attr: str = Field(
        "step", min_length=1, description="What of a report counts progress; its unit is a step."
    )
    grace_period: int = Field(
        1, ge=1, description="Steps before a trial may be stopped; the first rung (steps)."
    )
    max_t: int | None = Field(
        None,
        ge=1,
        validate_default=True,
        description="Step at which a trial is complete; asha needs it (steps).",
    )
    reduction_factor: float = Field(
        3, gt=1, description="One trial in this many goes on at each rung; rungs grow by it."
    )

    @field_validator("max_t")
    @classmethod
    def _complete(cls, max_t: int | None, info: ValidationInfo) -> int | None:
        name, grace = info.data.get("name"), info.data.get("grace_period")
        if name == "asha" and max_t is None:
            raise ValueError("asha needs max_t, the step at which a trial is complete")
        if max_t is not None and grace is not None and max_t < grace:
            raise ValueError(f"must be >= grace_period ({grace}), got {max_t}")
        return max_t


class BudgetSpec(_Section):
    """When the search ends: at whichever limit comes first."""

    trials: int | None = Field(
        None, ge=1, description="Trials in all; a space of only grid_search gives its own (trials)."
    )
    time: Seconds | None = Field(
        None, description="Wall-clock time over all runs of the sweep (seconds, or '90s', '2h')."
    )


class ResourcesSpec(_Section):
    """What one trial takes, and how many run at once."""

    workers: int = Field(1, ge=1, description="Ranks of a trial (processes).")
    cpus_per_worker: float = Field(1, gt=0, description="CPU cores of one worker (cores).")
    gpus_per_worker: Annotated[float, Field(ge=0)] | Literal["auto"] = Field(
        "auto",
        description="GPUs of one worker (GPUs); auto: one if the cluster has enough, else 0.",
    )
    concurrency: Annotated[int, Field(ge=1)] | Literal["auto"] = Field(
        "auto", description="Trials at once (trials); auto: as many as the cluster can place."
    )
    isolation: Literal["lane", "trial"] = Field(
        "lane", description="lane: processes take trial after trial; trial: fresh ones for each."
    )


class CheckpointSpec(_Section):
    """When a trial's state is saved."""

    every: int = Field(1, ge=1, description="Steps between checkpoints (steps).")
    keep: int = Field(2, ge=1, description="Newest checkpoints kept of each trial (checkpoints).")


class FailureSpec(_Section):
    """What happens to a trial that breaks."""

    max_retries: int = Field(2, ge=0, description="New attempts after a crash (attempts).")
    start_timeout: Seconds = Field(
        120.0, description="Longest wait for a trial's workers to start (seconds, or '2m')."
    )


class TrackingSpec(_Section):
    """Where runs are logged for comparison."""

    name: Literal["mlflow", "none"] = Field("mlflow", description="Tracker.")
    uri: EnvText | None = Field(
        None, description="Tracking server, ${ENV} allowed; default: a database in the storage."
    )
    experiment: str | None = Field(None, description="Experiment's name; default: the sweep's.")


_SECTIONS = ("search", "scheduler", "budget", "resources", "checkpoint", "failure", "tracking")


class SweepSpec(_Section):
    """One search over one space: what a sweep file says."""

    name: str = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$",
        max_length=64,
        description="The sweep's name and the name of its folder.",
    )
    description: str | None = Field(None, description="What the sweep is for, in your words.")
    trainable: str = Field(
        min_length=1,
        description="Training code: a name (causal_lm, digits), script.py:function or "
        "package.module:function.",
    )
    metric: str = Field(min_length=1, description="The reported metric to optimise.")
    mode: Literal["min", "max"] = Field("min", description="Whether less or more is better.")
    space: Annotated[dict[str, Any], PlainValidator(parse_space)] = Field(
        description="What is searched: parameters, nested as you like, each with a domain."
    )
    fixed: dict[str, Any] = Field(
        default_factory=dict, description="What is not searched: parameters with plain values."
    )
    search: SearchSpec = Field(default_factory=SearchSpec)
    scheduler: SchedulerSpec
    budget: BudgetSpec = Field(default_factory=BudgetSpec)
    resources: ResourcesSpec = Field(default_factory=ResourcesSpec)
    checkpoint: CheckpointSpec = Field(default_factory=CheckpointSpec)
    failure: FailureSpec = Field(default_factory=FailureSpec)
    tracking: TrackingSpec = Field(default_factory=TrackingSpec)
    storage: EnvText = Field(
        "./sweeps", description="Folder that holds the sweep's folder, ${ENV} allowed."
    )
    seed: int = Field(0, ge=0, description="From which all randomness of the sweep derives.")

    @model_validator(mode="before")
    @classmethod
    def _empty_sections(cls, data: Any) -> Any:
        """A section without keys (all commented out, say) is a section of defaults."""
        if not isinstance(data, Mapping):
            return data
        empty: dict[str, Any] = {key: {} for key in _SECTIONS if data.get(key) is None}
        return {**data, **empty, "fixed": {} if data.get("fixed") is None else data["fixed"]}

    @field_validator("fixed")
    @classmethod
    def _fixed_apart(cls, fixed: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        check_fixed(fixed, info.data.get("space", {}))
        return fixed

    @field_validator("budget")
    @classmethod
    def _some_limit(cls, budget: BudgetSpec, info: ValidationInfo) -> BudgetSpec:
        if budget.trials is not None or budget.time is not None or "space" not in info.data:
            return budget
        domains = flatten(info.data["space"]).values()
        if any(domain.kind != "grid_search" for domain in domains):
            raise ValueError("needs trials or time, like trials: 16")
        points = math.prod(len(domain.categories) for domain in domains)
        return budget.model_copy(update={"trials": points})

    def domains(self) -> dict[str, Domain]:
        """Dotted name to domain, in file order."""
        return flatten(self.space)

    def grid(self) -> dict[str, Domain]:
        """The `grid_search` domains, of which every combination is tried."""
        return {name: d for name, d in self.domains().items() if d.kind == "grid_search"}

    def nest(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """A trial's configuration: `fixed`, and the searched values by dotted name."""
        return merge(self.fixed, nested(params))
