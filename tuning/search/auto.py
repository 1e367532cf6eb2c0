"""The searcher and the scheduler `auto`: chooses one and says why; the spec file records it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from search_spaces.domains.conditional import parameters
from search_spaces.domains.domain import Domain
from search_spaces.spec.search import SearchSpec
from search_spaces.spec.sweep import SweepSpec
from trainables.registry import resolve

MANY_TRIALS, MANY_PARAMETERS = 1000, 20


@dataclass(frozen=True)
class AutoChoice:
    """Name of a searcher or scheduler, and the reason in a few words."""

    name: str
    why: str

    def __str__(self) -> str:
        return f"{self.name} ({self.why})"


def choose_searcher(spec: SweepSpec) -> AutoChoice:
    """The searcher of a sweep: the named one, or the choice of `auto`."""
    return _choose(spec.search.name, _pick_searcher, spec)


def choose_scheduler(spec: SweepSpec) -> AutoChoice:
    """The scheduler of a sweep: the named one, or the choice of `auto` for its trainable.

    Raises:
        UserError: the trainable does not exist.
    """
    if "scheduler" not in spec.model_fields_set:
        return AutoChoice("none", "no scheduler in the file: every trial runs to its end")
    return _choose(spec.scheduler.name, _pick_scheduler, spec)


def resolve_search(spec: SweepSpec) -> SearchSpec:
    """The section `search` with `auto` replaced by its choice."""
    return spec.search.model_copy(update={"name": choose_searcher(spec).name})


def with_scheduler(spec: SweepSpec) -> SweepSpec:
    """A copy of the spec with `auto` replaced by its choice."""
    picked = spec.scheduler.model_copy(update={"name": choose_scheduler(spec).name})
    return spec.model_copy(update={"scheduler": picked})


def auto_choice_comment(spec: SweepSpec) -> str:
    """The comment in the spec file that says what `auto` chose; empty without `auto`."""
    return f"# scheduler {choose_scheduler(spec)}" if spec.scheduler.name == "auto" else ""


def _choose(
    named: str, pick: Callable[[SweepSpec], tuple[str, str]], spec: SweepSpec
) -> AutoChoice:
    if named != "auto":
        return AutoChoice(named, "as the sweep file says")
    name, why = pick(spec)
    return AutoChoice(name, f"auto: {why}")


def _pick_scheduler(spec: SweepSpec) -> tuple[str, str]:
    if spec.replicates > 1:
        return "asha", "replicates are compared together, and none of them can pause"
    trainable = resolve(spec.trainable)
    if not trainable.can_pause:
        return "asha", f"a {trainable.kind} chooses when to save, so it cannot pause at a rung"
    return "asha_promote", "its trials can pause at a rung and continue from there"


def _pick_searcher(spec: SweepSpec) -> tuple[str, str]:
    if all(domain.kind == "grid_search" for domain in spec.domains().values()):
        return "random", "every parameter is on a grid, nothing is left to model"
    if spec.scheduler.name in ("pbt", "pb2"):
        return "sobol", "the population is drawn at once, and changes by itself"
    trials, objectives = spec.budget.trials, len(spec.objectives)
    if objectives > 3:
        return "nsga3", f"{objectives} objectives"
    if objectives > 1 and (trials is None or trials >= 10 * spec.search.population):
        return "nsga2", f"{objectives} objectives and trials for ten generations"
    if objectives > 1:
        return "tpe", f"{objectives} objectives and few trials"
    return _pick_for_one_objective(spec)


def _pick_for_one_objective(spec: SweepSpec) -> tuple[str, str]:
    leaves, trials = list(parameters(spec.space)), spec.budget.trials
    domains = [leaf.leaf for leaf in leaves if isinstance(leaf.leaf, Domain)]
    if any(leaf.when for leaf in leaves):
        return "tpe", "some parameters depend on others"
    if sum(d.is_categorical and d.kind != "ordinal" for d in domains) * 2 > len(domains):
        return "tpe", "most parameters are categories"
    if len(domains) > MANY_PARAMETERS:
        return "tpe", f"more than {MANY_PARAMETERS} parameters"
    if trials is not None and trials > MANY_TRIALS:
        return "tpe", f"more than {MANY_TRIALS} trials"
    return "mfgp", "mostly numbers, one objective, few enough trials for a Gaussian process"
