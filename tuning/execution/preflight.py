"""What can be known to be wrong before anything starts: hyperparameters, code, metric, budgets."""

from __future__ import annotations

import random
import re
from typing import Any

from search_spaces.domains import Domain
from search_spaces.errors import UserError
from search_spaces.load import LoadedSweep
from search_spaces.plain import KeyPath, walk
from search_spaces.redaction import holds_secret
from search_spaces.schema import ENV_FIELDS, SweepSpec
from trainables.registry import check_config, is_foreign

SAMPLES = 64


def preflight(loaded: LoadedSweep) -> list[dict[str, Any]]:
    """Sample configurations and check each against the trainable; gives the sampled parameters.

    Raises:
        UserError: all mistakes at once, each with the line of the sweep file that it comes from.
    """
    spec, sampled = loaded.spec, sample(loaded.spec, SAMPLES)
    try:
        found = [*_secrets(spec), *_mistakes(spec, sampled)]
    except UserError as e:  # of the trainable itself
        where = loaded.source.where(("trainable",))
        raise UserError(*(f"{where}: {line}" for line in e.problems)) from e
    if found:
        problems = [loaded.source.problem(path, text) for path, text in found]
        raise UserError(*(p.line for p in sorted(problems, key=lambda p: p.order)))
    return sampled


def _secrets(spec: SweepSpec) -> list[tuple[KeyPath, str]]:
    """What would be written down, in the sweep folder and in MLflow, and should not be."""
    data = spec.model_dump(mode="json")
    advice: dict[KeyPath, str] = dict.fromkeys(
        ENV_FIELDS, "write ${NAME} in its place, and set that variable"
    )
    other = "let the training code read it from an environment variable"
    return [
        (path, f"holds a secret, which would be written down; {advice.get(path, other)}")
        for path, value in walk(data)
        if holds_secret(next((str(p) for p in reversed(path) if isinstance(p, str)), ""), value)
    ]


def _mistakes(spec: SweepSpec, sampled: list[dict[str, Any]]) -> list[tuple[KeyPath, str]]:
    """Every mistake once, by its place in the file.

    A rule that a range breaks is told with one value: the bound, as it stands in the file.
    """
    domains = spec.domains()
    seen: dict[tuple[tuple[str, ...], str], str] = {}
    for config in map(spec.nest, reversed(sampled)):
        for path, problem in check_config(spec.trainable, config):
            place = _in_file(spec, path or _named(problem, config))
            domain = domains.get(".".join(place[1:]))
            categorical = domain is not None and domain.is_categorical
            rule = problem if categorical else problem.partition(", got ")[0]
            seen.setdefault((place, rule if path else "they fit together"), problem)
    return [(place, problem) for (place, _), problem in seen.items()]


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
    for end in (0, -1):
        sampled.append({name: _extremes(domain)[end] for name, domain in domains.items()})
    return sampled


def _extremes(domain: Domain) -> list[Any]:
    if domain.is_categorical:
        return list(domain.categories)
    return [domain.lower, domain.high]


def _named(problem: str, config: dict[str, Any]) -> tuple[str, ...]:
    """The first hyperparameter that a problem with several of them speaks of."""
    return tuple(word for word in re.findall(r"\w+", problem) if word in config)[:1]


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
