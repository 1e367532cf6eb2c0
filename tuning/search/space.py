"""Compiles the sweep file's domains to Optuna distributions, and samples back to their values.

Optuna has no distribution that is quantised and logarithmic at once, and stores only scalars as
categories. So such a domain is sampled in a form that Optuna has, and decoded.
"""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from search_spaces.domains import Domain


def distribution(domain: Domain) -> BaseDistribution:
    """The Optuna distribution that a domain is sampled from."""
    if domain.is_categorical:
        return CategoricalDistribution([_category(c) for c in domain.categories])
    step = None if domain.log else domain.q
    if domain.integer:
        low, high = int(domain.lower), int(domain.high)
        return IntDistribution(low, high, log=domain.log, step=int(step or 1))
    return FloatDistribution(domain.lower, domain.upper, log=domain.log, step=step)


def decode(domain: Domain, sampled: Any) -> Any:
    """The domain's value for what Optuna sampled."""
    if domain.is_categorical:
        return next(c for c in domain.categories if _category(c) == sampled)
    if domain.q is None:
        return sampled
    value = Decimal(repr(domain.q)) * round(sampled / domain.q)  # 3 * 0.05 is not 0.15 in floats
    return int(value) if domain.integer else float(value)


def encode(domain: Domain, value: Any) -> Any:
    """What Optuna would have sampled for a value; the inverse of `decode` up to quantisation."""
    return _category(value) if domain.is_categorical else value


def _category(value: Any) -> bool | int | float | str | None:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return json.dumps(value, sort_keys=True)
