"""The searchers by name. Each is an Optuna sampler; what is shared is in `tuning.search.study`."""

from __future__ import annotations

from pkgutil import resolve_name
from typing import TYPE_CHECKING

from search_spaces.schema import SearchSpec

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler

SEARCHERS: dict[str, str] = {
    "tpe": "tuning.search.searchers:tpe",
    "random": "tuning.search.searchers:random",
}


def make_sampler(spec: SearchSpec, seed: int) -> BaseSampler:
    """A fresh sampler. One is made for each proposal, so a proposal depends on nothing but the
    seed, its number and the study: a resumed search goes on as if it had never stopped.
    """
    sampler: BaseSampler = resolve_name(SEARCHERS[spec.name])(spec, seed)
    return sampler


def tpe(spec: SearchSpec, seed: int) -> BaseSampler:
    """Tree-structured Parzen estimator (Bergstra et al. 2011), univariate and without liar.

    Optuna 5's defaults (multivariate, constant liar) count running trials as bad, but under early
    stopping those that run long are the good ones; measured, they lose to random search.
    """
    from optuna.samplers import TPESampler

    return TPESampler(
        seed=seed,
        n_startup_trials=spec.startup_trials,
        multivariate=False,
        constant_liar=False,
    )


def random(spec: SearchSpec, seed: int) -> BaseSampler:
    """Independent random values."""
    from optuna.samplers import RandomSampler

    return RandomSampler(seed=seed)
