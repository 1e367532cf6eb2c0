"""The searcher `auto`: chooses one and says why."""

from __future__ import annotations

from dataclasses import dataclass

from search_spaces.domains.conditional import parameters
from search_spaces.domains.domain import Domain
from search_spaces.spec.search import SearchSpec
from search_spaces.spec.sweep import SweepSpec

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
    if spec.search.name != "auto":
        return AutoChoice(spec.search.name, "as the sweep file says")
    name, why = _pick(spec)
    return AutoChoice(name, f"auto: {why}")


def resolve_search(spec: SweepSpec) -> SearchSpec:
    """The section `search` with `auto` replaced by its choice."""
    return spec.search.model_copy(update={"name": choose_searcher(spec).name})


def _pick(spec: SweepSpec) -> tuple[str, str]:
    if all(domain.kind == "grid_search" for domain in spec.domains().values()):
        return "random", "every parameter is on a grid, nothing is left to model"
    if spec.scheduler.name in ("pbt", "pb2"):
        return "sobol", "the population is drawn at once, and changes by itself"
    return _for_several(spec) if len(spec.objectives) > 1 else _for_one(spec)


def _for_several(spec: SweepSpec) -> tuple[str, str]:
    trials, objectives = spec.budget.trials, f"{len(spec.objectives)} objectives"
    if len(spec.objectives) > 3:
        return "nsga3", objectives
    if trials is None or trials >= 10 * spec.search.population:
        return "nsga2", f"{objectives} and trials for ten generations"
    return "tpe", f"{objectives} and few trials"


def _for_one(spec: SweepSpec) -> tuple[str, str]:
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
