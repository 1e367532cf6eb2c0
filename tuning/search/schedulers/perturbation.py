"""Changes parameters of a trial that continues from another trial's weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from search_spaces.domains.domain import Domain
from search_spaces.spec.scheduler import SchedulerSpec

_FACTORS = (0.8, 1.2)


def mutable_domains(
    spec: SchedulerSpec, domains: Mapping[str, Domain], params: Mapping[str, Any]
) -> dict[str, Domain]:
    """The parameters that may change during training: those of `scheduler.mutate`, else all real
    numbers. Whole numbers and categories often determine the shape of the weights.
    """
    chosen = spec.mutate
    return {
        name: d
        for name, d in domains.items()
        if name in params
        and (name in chosen if chosen is not None else not (d.integer or d.is_categorical))
    }


def perturb(
    params: dict[str, Any],
    domains: Mapping[str, Domain],
    resample: float,
    rng: np.random.Generator,
) -> dict[str, Any]:
    """Resample each parameter with probability `resample`, else multiply it by 0.8 or 1.2;
    a category is resampled or kept.
    """
    changed = dict(params)
    for name, domain in domains.items():
        if rng.random() < resample:
            changed[name] = value_at_share(domain, float(rng.random()))
        elif not domain.is_categorical:
            changed[name] = nearest(domain, params[name] * _FACTORS[int(rng.integers(2))])
    return changed


def value_at_share(domain: Domain, share: float) -> Any:
    """The value at a share in [0, 1) of the domain; of its logarithm or quantile for log and normal
    domains.
    """
    if domain.is_categorical:
        return domain.categories[min(int(share * len(domain.categories)), int(domain.upper))]
    if (normal := domain.normal) is not None:
        least, most = normal.quantiles
        return nearest(domain, normal.at(least + share * (most - least)))
    low, high = _ends(domain)
    here = low + share * (high - low)
    return nearest(domain, float(np.exp(here)) if domain.log else here)


def share_of(domain: Domain, value: Any) -> float:
    """The inverse of `value_at_share`, in [0, 1]."""
    if domain.is_categorical:
        return ((domain.index(value) or 0) + 0.5) / len(domain.categories)
    if (normal := domain.normal) is not None:
        (low, high), here = normal.quantiles, normal.quantile(value)
    else:
        (low, high), here = _ends(domain), float(np.log(value) if domain.log else value)
    return (here - low) / (high - low) if high > low else 0.0


def _ends(domain: Domain) -> tuple[float, float]:
    """The values, or logarithms, of the shares 0 and 1. Where values are whole or quantised, they
    lie half a step outside the bounds, so that the end values get an interval of a whole step.
    """
    half = (1 if domain.integer and domain.q is None else domain.q or 0) / 2
    low, high = domain.lower - half, domain.high + half
    return (float(np.log(low)), float(np.log(high))) if domain.log else (low, high)


def nearest(domain: Domain, value: float) -> int | float:
    """The nearest value of a numeric domain."""
    inside = min(max(value, domain.lower), domain.high)
    if domain.q is not None:
        return domain.multiple(round(inside / domain.q))
    return round(inside) if domain.integer else float(inside)
