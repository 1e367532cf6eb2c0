"""Translates a domain to an Optuna distribution, and Optuna's samples to values of the domain.

Optuna has no distribution that is both quantised and logarithmic, and no normal one; its categories
are scalars. Such domains are sampled in another form and decoded: a normal domain is sampled by its
quantile, which is uniform for every sampler and model.
"""

from __future__ import annotations

import json
from typing import Any

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from search_spaces.domains.domain import Domain


def distribution(domain: Domain) -> BaseDistribution:
    """The Optuna distribution from which a domain is sampled."""
    if domain.kind == "ordinal":
        return IntDistribution(0, len(domain.categories) - 1)
    if domain.is_categorical:
        return CategoricalDistribution(_labels(domain))
    if (normal := domain.normal) is not None:
        return FloatDistribution(*normal.quantiles)
    step = None if domain.log else domain.q
    if domain.integer:
        low, high = int(domain.lower), int(domain.high)
        return IntDistribution(low, high, log=domain.log, step=int(step or 1))
    return FloatDistribution(domain.lower, domain.upper, log=domain.log, step=step)


def decode(domain: Domain, sampled: Any) -> Any:
    """The domain's value for a sample of Optuna's."""
    if domain.kind == "ordinal":
        return domain.categories[int(sampled)]
    if domain.is_categorical:
        return domain.categories[_labels(domain).index(sampled)]
    if (normal := domain.normal) is not None:
        sampled = normal.at(sampled)
    if domain.q is None:
        return sampled
    return domain.multiple(round(sampled / domain.q))


def encode(domain: Domain, value: Any) -> Any:
    """The sample for a value: the inverse of `decode`, up to quantisation."""
    if (normal := domain.normal) is not None:
        return normal.quantile(value)
    if not domain.is_categorical:
        return value
    index = domain.index(value)
    assert index is not None
    return index if domain.kind == "ordinal" else _labels(domain)[index]


def only_sample(dist: BaseDistribution) -> Any:
    """The sample of a distribution that has only one."""
    if isinstance(dist, CategoricalDistribution):
        return dist.choices[0]
    assert isinstance(dist, FloatDistribution | IntDistribution)
    return dist.low


def _labels(domain: Domain) -> list[bool | int | float | str | None]:
    """Categories as Optuna stores them: scalars unchanged; others, and NaN, as distinct texts."""
    taken = {c for c in domain.categories if isinstance(c, str)}
    labels: list[bool | int | float | str | None] = []
    for value in domain.categories:
        if value is None or (isinstance(value, bool | int | float | str) and value == value):
            labels.append(value)
            continue
        text = json.dumps(value, sort_keys=True)
        while text in taken:
            text += " "
        labels.append(text)
    return labels
