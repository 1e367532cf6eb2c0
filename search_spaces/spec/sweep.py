"""The sweep file's schema: sections and keys with types, defaults and descriptions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainValidator,
    ValidationInfo,
    field_validator,
    model_validator,
)

from search_spaces.domains.conditional import domains_by_name
from search_spaces.domains.domain import Domain
from search_spaces.domains.grid import as_grids
from search_spaces.domains.parser import check_fixed, parse_space
from search_spaces.expressions import parse
from search_spaces.formulas.constraints import (
    build_configuration,
    check_outcome_constraints,
    violated_constraint,
)
from search_spaces.formulas.feasibility import (
    check_constraints,
    feasible_grid_points,
    grid_problem,
)
from search_spaces.formulas.points_to_evaluate import check_points
from search_spaces.nested import show
from search_spaces.spec.base import EnvText, Section
from search_spaces.spec.budget import ONE_OBJECTIVE, BudgetSpec, PricesSpec
from search_spaces.spec.checkpoint import CheckpointSpec
from search_spaces.spec.cluster import ClusterSpec
from search_spaces.spec.command import (
    EXTERNAL,
    ReportFromSpec,
    UserCodeSpec,
    check_command,
    name_of,
    template_names,
)
from search_spaces.spec.failure import FailureSpec
from search_spaces.spec.resources import ResourcesSpec
from search_spaces.spec.scheduler import SchedulerSpec, check_scheduler
from search_spaces.spec.search import SearchSpec
from search_spaces.spec.select import (
    Metrics,
    Mode,
    Modes,
    Objective,
    SelectSpec,
    check_pairs,
    default_mode,
    default_objectives,
    objectives,
)
from search_spaces.spec.tracking import MonitoringSpec, NotifySpec, TrackingSpec

ENV_FIELDS = frozenset(
    {
        ("storage",),
        ("tracking", "uri"),
        ("checkpoint", "mirror"),
        ("notify", "webhook"),
        ("monitoring", "token"),
    }
)
"""The only fields in which `${ENV}` is expanded."""


def _check_printable(name: str | None) -> str | None:
    if name is not None and not name.isprintable():
        raise ValueError(f"needs printable characters, got {show(name)}")
    return name


def _check_cwd(cwd: str, info: ValidationInfo) -> str:
    if cwd == "project" and info.data.get("command", ()) is None:
        raise ValueError("project is for a command; a trainable has the trial's folder")
    return cwd


def _check_variables(names: list[str]) -> list[str]:
    if wrong := [name for name in names if not re.fullmatch(r"[A-Za-z0-9_*]+", name)]:
        raise ValueError(f"needs names like MY_LICENSE or CORP_*, got {wrong[0]!r}")
    return names


class SweepSpec(Section):
    """One search over one space: the content of a sweep file."""

    @classmethod
    def sections(cls) -> dict[str, type[Section]]:
        """The keys that hold a section, and its class."""
        types = {name: field.annotation for name, field in cls.model_fields.items()}
        return {n: t for n, t in types.items() if isinstance(t, type) and issubclass(t, Section)}

    name: str = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$",
        max_length=64,
        description="The sweep's name and the name of its folder.",
    )
    description: str | None = Field(None, description="Purpose of the sweep, in your words.")
    named: Annotated[str | None, AfterValidator(_check_printable)] = Field(
        None,
        alias="trainable",
        min_length=1,
        description="Training code: a name (causal_lm, digits), script.py:function or "
        "package.module:function.",
    )
    metrics: Metrics = Field(
        alias="metric", description="The reported metric to optimize, or a list of several."
    )
    modes: Annotated[Modes, BeforeValidator(default_mode), AfterValidator(check_pairs)] = Field(
        None,
        alias="mode",
        validate_default=True,
        description="Whether less or more is better; or one per metric. Default: min; required for "
        "a metric whose name says that more is better, like accuracy.",
    )
    space: Annotated[dict[str, Any], PlainValidator(parse_space)] = Field(
        description="Searched parameters, nested as you like, each with a domain."
    )
    fixed: Annotated[dict[str, Any], AfterValidator(check_fixed)] = Field(
        default_factory=dict, description="Parameters that are not searched, with plain values."
    )
    command: Annotated[list[str] | None, AfterValidator(check_command)] = Field(
        None,
        validate_default=True,
        min_length=1,
        description="In place of trainable, a program with its arguments: [sh, train.sh, --lr, "
        "'{learning_rate}']; {args}: all parameters as --name value.",
    )
    cwd: Annotated[Literal["trial", "project"], AfterValidator(_check_cwd)] = Field(
        "trial",
        description="Working directory of the command: the trial's own, empty at first; or a view "
        "of the folder of the command's script in it, so that relative paths are found.",
    )
    report_from: ReportFromSpec = Field(default_factory=ReportFromSpec)
    user_code: UserCodeSpec = Field(default_factory=UserCodeSpec)
    constraints: Annotated[list[str], AfterValidator(check_constraints)] = Field(
        default_factory=list,
        validate_default=True,
        description="Formulas that every configuration satisfies: num_layers * width <= 4096.",
    )
    outcome_constraints: Annotated[list[str], AfterValidator(check_outcome_constraints)] = Field(
        default_factory=list,
        description="Formulas that a winner's metrics satisfy: peak_memory_gib <= 40.",
    )
    points: Annotated[list[dict[str, Any]], AfterValidator(check_points)] = Field(
        default_factory=list,
        description="Configurations to try first; missing parameters are sampled.",
    )
    replicates: int = Field(
        1, ge=1, description="Seeds with which each configuration is tried (trials)."
    )
    search: SearchSpec = Field(default_factory=SearchSpec)
    scheduler: Annotated[SchedulerSpec, AfterValidator(check_scheduler)] = Field(
        default_factory=lambda: SchedulerSpec(name="none"),
        description="Default: none, so that every trial runs to its end.",
    )
    prices: PricesSpec | None = Field(
        None, description="What the machines cost; `budget.cost` needs it."
    )
    budget: BudgetSpec = Field(default_factory=BudgetSpec)
    resources: ResourcesSpec = Field(default_factory=ResourcesSpec)
    checkpoint: CheckpointSpec = Field(default_factory=CheckpointSpec)
    failure: FailureSpec = Field(default_factory=FailureSpec)
    select: Annotated[SelectSpec, AfterValidator(default_objectives)] = Field(
        default_factory=SelectSpec, validate_default=True
    )
    tracking: TrackingSpec = Field(default_factory=TrackingSpec)
    notify: NotifySpec = Field(default_factory=NotifySpec)
    monitoring: MonitoringSpec = Field(default_factory=MonitoringSpec)
    cluster: ClusterSpec = Field(default_factory=ClusterSpec)
    redact: Annotated[list[str], AfterValidator(_check_variables)] = Field(
        default_factory=list,
        description="More environment variables whose values are secret: MY_LICENSE, CORP_*.",
    )
    storage: EnvText = Field(
        "./sweeps", description="Folder that holds the sweep's folder, ${ENV} allowed."
    )
    seed: int = Field(0, ge=0, lt=2**63, description="Seed of all random numbers of the sweep.")

    @model_validator(mode="before")
    @classmethod
    def _empty_sections(cls, data: Any) -> Any:
        """Replace a section without keys (all commented out, say) by its defaults."""
        if not isinstance(data, Mapping):
            return data
        empty: dict[str, Any] = {
            key: {} for key in (*cls.sections(), "fixed") if data.get(key) is None
        }
        made = {**data, **empty}
        return made if made["scheduler"] else {k: v for k, v in made.items() if k != "scheduler"}

    @field_validator("budget")
    @classmethod
    def _check_limits(cls, budget: BudgetSpec, info: ValidationInfo) -> BudgetSpec:
        scheduler = info.data.get("scheduler")
        if scheduler is not None and scheduler.name in ("pbt", "pb2") and budget.trials is None:
            raise ValueError(f"{scheduler.name} needs trials, the size of its population")
        data, search = info.data, info.data.get("search")
        if budget.cost is not None and info.data.get("prices", budget) is None:
            raise ValueError("cost needs prices, like prices: {gpu_hour: 2.5}")
        single = [name for name in ONE_OBJECTIVE if getattr(budget, name) is not None]
        if single and isinstance(data.get("metrics"), list):
            raise ValueError(f"{single[0]} takes one metric, not several")
        whole = search is not None and search.name == "grid"
        if "space" not in data or (budget.bounded and not whole):
            return budget
        space = as_grids(data["space"]) if whole else data["space"]
        if any(domain.kind != "grid_search" for domain in domains_by_name(space).values()):
            raise ValueError("needs trials, time, cpu_hours, gpu_hours or cost, like trials: 16")
        constraints, fixed = data.get("constraints", []), data.get("fixed", {})
        if problem := grid_problem([parse(text) for text in constraints], space, fixed):
            raise ValueError(problem)
        points = len(feasible_grid_points(constraints, space, fixed)) * data.get("replicates", 1)
        return budget.model_copy(update={"trials": min(points, budget.trials or points)})

    @property
    def trainable(self) -> str:
        """The name of the training code, from which `trainables.registry.resolve` makes it."""
        return name_of(self.command) if self.command else self.named or ""

    @property
    def can_be_confirmed(self) -> bool:
        """Whether trials can be trained again under other seeds, as far as the file says."""
        names = {*template_names(self.command or ()), *self.space, *self.fixed}
        return "seed" in names if self.command else self.named != EXTERNAL

    @property
    def objectives(self) -> tuple[Objective, ...]:
        """What is optimized, in the file's order; most sweeps have one objective."""
        return objectives(self.metrics, self.modes)

    @property
    def metric(self) -> str:
        """The metric of the first objective."""
        return self.objectives[0].metric

    @property
    def mode(self) -> Mode:
        """Whether less or more of the first objective is better."""
        return self.objectives[0].mode

    def domains(self) -> dict[str, Domain]:
        """Dotted name to domain, in file order."""
        return domains_by_name(self.space)

    def grid(self) -> dict[str, Domain]:
        """The `grid_search` domains; every combination of them is tried."""
        return {name: d for name, d in self.domains().items() if d.kind == "grid_search"}

    def grid_points(self) -> list[dict[str, Any]]:
        """Every combination of the grids that the constraints allow; `[{}]` without grids."""
        space = as_grids(self.space) if self.search.name == "grid" else self.space
        return feasible_grid_points(self.constraints, space, self.fixed)

    def nest(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """A trial's nested configuration: `fixed`, the searched values (given by dotted name), the
        constants of chosen options, and computed values.
        """
        return build_configuration(self.space, self.fixed, params)

    def violated_constraint(self, params: Mapping[str, Any]) -> str | None:
        """The first constraint that a configuration violates; None if it satisfies all."""
        return violated_constraint(self.constraints, self.space, self.fixed, params)
