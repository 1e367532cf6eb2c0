"""Sampled configurations of a sweep, to check before any trial starts."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import islice
from typing import Any

from search_spaces.domains.conditional import draw, draw_value, parameters
from search_spaces.domains.domain import Domain
from search_spaces.expressions import parse
from search_spaces.formulas.feasibility import steps
from search_spaces.nested import walk
from search_spaces.spec.sweep import SweepSpec
from trainables.registry import resolve

SAMPLES = 64
_MAX_DRAWS, _MAX_WORK = 1000, 250_000
"""Draws until the search for a configuration that satisfies the constraints ends; draws of all such
searches, times the steps of each.
"""


def sample(spec: SweepSpec, count: int) -> list[dict[str, Any]]:
    """Sample configurations that satisfy the constraints.

    First the `points`, then `count` random ones, then one with each bound and each category, if
    there is one that satisfies the constraints.
    """
    rng = random.Random(spec.seed)
    size = steps([parse(text) for text in spec.constraints], spec.space, spec.fixed)
    size = max(size, sum(1 for _ in walk(spec.fixed)))  # each configuration has a copy
    draws = iter(range(max(count, _MAX_WORK // size)))
    given = [*spec.points, *({} for _ in range(count))]
    sampled = [p for point in given if (p := _draw_with(spec, rng, point, draws)) is not None]
    for leaf in parameters(spec.space):
        if isinstance(leaf.leaf, Domain):
            for extreme in _extremes(leaf.leaf):
                wanted = {**dict(leaf.when), leaf.name: extreme}
                found = _draw_with(spec, rng, wanted, draws)
                sampled += [] if found is None else [found]
    lowest = draw(spec.space, lambda _, domain: _extremes(domain)[0])
    highest = draw(spec.space, lambda _, domain: _extremes(domain)[-1])
    return sampled + [
        corner for corner in (lowest, highest) if spec.violated_constraint(corner) is None
    ]


def _draw_with(
    spec: SweepSpec, rng: random.Random, given: dict[str, Any], draws: Iterator[int]
) -> dict[str, Any] | None:
    """A random configuration with the given values that satisfies the constraints, if found."""

    def pick(name: str, domain: Domain) -> Any:
        return given[name] if name in given else draw_value(domain, rng)

    candidates = (draw(spec.space, pick) for _ in islice(draws, _MAX_DRAWS))
    return next((params for params in candidates if spec.violated_constraint(params) is None), None)


def _extremes(domain: Domain) -> list[Any]:
    if domain.is_categorical:
        return list(domain.categories)
    return [domain.lower, domain.high]


def largest_checkpoint(spec: SweepSpec, sampled: list[dict[str, Any]]) -> int | None:
    """Approximate bytes of the largest checkpoint of sampled parameters; None if unknown."""
    model = resolve(spec.trainable).Config
    sizes = (model.model_validate(spec.nest(params)).checkpoint_bytes for params in sampled)
    return max((size for size in sizes if size is not None), default=None)
