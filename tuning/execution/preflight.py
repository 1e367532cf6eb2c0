"""What can be known to be wrong before anything starts: hyperparameters, code, metric, budgets."""

from __future__ import annotations

import random
from typing import Any

from search_spaces.domains import Domain
from search_spaces.errors import UserError
from search_spaces.load import LoadedSweep
from search_spaces.schema import SweepSpec
from trainables.registry import check_config, is_foreign

SAMPLES = 64


def preflight(loaded: LoadedSweep) -> list[dict[str, Any]]:
    """Sample configurations and check each against the trainable; gives the sampled parameters.

    Raises:
        UserError: all mistakes at once, each with the line of the sweep file that it comes from.
    """
    spec, sampled = loaded.spec, sample(loaded.spec, SAMPLES)
    problems: dict[str, None] = {}  # an ordered set
    for params in sampled:
        for path, problem in check_config(spec.trainable, spec.nest(params)):
            where = loaded.source.where(_in_file(spec, path))
            problems.setdefault(f"{where}: {'.'.join(path)}: {problem}")
    if problems:
        raise UserError(*problems)
    return sampled


def sample(spec: SweepSpec, count: int) -> list[dict[str, Any]]:
    """Configurations as random search would draw them, with every bound and category among them."""
    import optuna

    from tuning.search.space import decode, distribution

    domains = spec.domains()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=spec.seed))
    space = {k: distribution(d) for k, d in domains.items()}
    drawn = [study.ask(space).params for _ in range(count)]
    sampled = [{k: decode(domains[k], v) for k, v in params.items()} for params in drawn]
    rng = random.Random(spec.seed)
    for name, domain in domains.items():
        for extreme in _extremes(domain):
            sampled.append({**rng.choice(sampled[:count]), name: extreme})
    return sampled


def _extremes(domain: Domain) -> list[Any]:
    if domain.is_categorical:
        return list(domain.categories)
    return [domain.lower, domain.high]


def _in_file(spec: SweepSpec, path: tuple[str, ...]) -> tuple[str, ...]:
    """Where a hyperparameter stands in the sweep file: under `space` or under `fixed`."""
    node: Any = spec.space
    for key in path:
        if not isinstance(node, dict) or key not in node:
            return ("fixed", *path) if path and not is_foreign(spec.trainable) else ("trainable",)
        node = node[key]
        if isinstance(node, Domain):
            break
    return ("space", *path)
