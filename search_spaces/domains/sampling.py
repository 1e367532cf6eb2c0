"""Random configurations of a space, for checks that need no Optuna sampler."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from typing import Any

from search_spaces.domains.conditional import Pick, walk_active
from search_spaces.domains.domain import Domain


def draw(space: Mapping[str, Any], pick: Pick) -> dict[str, Any]:
    """A configuration: dotted name to picked value, of the active parameters."""
    walked = walk_active(space, pick)
    return {name: value for name, leaf, value in walked if isinstance(leaf, Domain)}


def draw_at_random(space: Mapping[str, Any], rng: random.Random) -> dict[str, Any]:
    """A configuration as random search draws it."""
    return draw(space, lambda _, domain: draw_value(domain, rng))


def draw_value(domain: Domain, rng: random.Random) -> Any:
    """One value of a domain."""
    if domain.is_categorical:
        return rng.choice(domain.categories)
    if (normal := domain.normal) is not None:
        value = normal.at(rng.uniform(*normal.quantiles))
        return value if domain.q is None else domain.multiple(round(value / domain.q))
    if domain.q is not None:
        low, high = (round(bound / domain.q) for bound in (domain.lower, domain.high))
        return domain.multiple(_number(low, high, domain.log, whole=True, rng=rng))
    return _number(domain.lower, domain.high, domain.log, whole=domain.integer, rng=rng)


def _number(low: float, high: float, log: bool, *, whole: bool, rng: random.Random) -> Any:
    if whole and not log:
        return rng.randint(int(low), int(high))
    half = 0.5 if whole else 0.0
    if log:
        value = math.exp(rng.uniform(math.log(low - half), math.log(high + half)))
    else:
        value = rng.uniform(low, high)
    value = min(max(value, low), high)
    return round(value) if whole else value
