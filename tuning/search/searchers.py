"""Makes the searchers, which are Optuna samplers; `study.proposal_sampler` gives them evidence."""

from __future__ import annotations

import copy
import warnings
from functools import lru_cache
from pkgutil import resolve_name
from typing import Any

from optuna import Study
from optuna.distributions import BaseDistribution
from optuna.exceptions import ExperimentalWarning
from optuna.samplers import BaseSampler, CmaEsSampler, NSGAIIISampler, NSGAIISampler, TPESampler
from optuna.trial import FrozenTrial, TrialState

from search_spaces.spec.search import SEARCHERS, SearchSpec
from tuning.search.evidence import Evidence
from tuning.search.models.optuna_gp import OneThreadGPSampler

UNIQUE = ("mfgp",)
"""Searchers that propose no configuration twice, neither by their model nor at random."""
BLIND = ("random", "grid", "sobol")
"""Searchers that see no other trials: a proposal takes the same time after any number of them."""
READS_VALUES = ("tpe", "gp", "cmaes")
"""Searchers that learn from the study's values, which are therefore made comparable."""
_resolve = lru_cache(resolve_name)


def make_sampler(spec: SearchSpec, seed: int, evidence: Evidence | None = None) -> BaseSampler:
    """A new sampler. Each proposal gets a new one, so that it depends only on seed, study and
    evidence, and a resumed search proposes the same as an uninterrupted one.
    """
    sampler: BaseSampler = _resolve(SEARCHERS[spec.name])(spec, seed, evidence or Evidence())
    return sampler


def tpe(spec: SearchSpec, seed: int, evidence: Evidence) -> BaseSampler:
    """Tree-structured Parzen estimator (Bergstra et al. 2011); univariate, without constant liar.

    Optuna 5's defaults (multivariate, constant liar) treat running trials as bad, but with early
    stopping long-running trials are the good ones. In our benchmark they lose to random search.
    """
    with _experimental():
        return TPESampler(
            seed=seed,
            n_startup_trials=spec.startup_trials,
            multivariate=spec.multivariate,
            group=spec.multivariate,
            constant_liar=spec.constant_liar,
        )


def gp(spec: SearchSpec, seed: int, evidence: Evidence) -> BaseSampler:
    """Optuna's Gaussian process with expected improvement."""
    with _experimental():
        return OneThreadGPSampler(
            seed=seed, n_startup_trials=spec.startup_trials, warn_independent_sampling=False
        )


def cmaes(spec: SearchSpec, seed: int, evidence: Evidence) -> BaseSampler:
    """Covariance matrix adaptation (Hansen 2016, "The CMA Evolution Strategy: A Tutorial"), for
    numbers; categories are sampled at random.
    """
    with _experimental():
        return WarmCmaEsSampler(
            seed=seed,
            n_startup_trials=spec.startup_trials,
            consider_pruned_trials=True,
            warn_independent_sampling=False,
        )


def nsga2(spec: SearchSpec, seed: int, evidence: Evidence) -> BaseSampler:
    """A genetic algorithm for several objectives (Deb et al. 2002)."""
    return NSGAIISampler(seed=seed, population_size=spec.population)


def nsga3(spec: SearchSpec, seed: int, evidence: Evidence) -> BaseSampler:
    """A genetic algorithm for four or more objectives (Deb & Jain 2014)."""
    with _experimental():
        return NSGAIIISampler(seed=seed, population_size=spec.population)


def _experimental() -> warnings.catch_warnings[None]:
    """Ignore Optuna's warnings of experimental features; the version is pinned."""
    return warnings.catch_warnings(action="ignore", category=ExperimentalWarning)


REBUILT = "made_again"
"""Marks trials that were added with their outcome: the study was lost, or the space has changed."""
_MIN_TRIALS = 10
"""The method starts from the best tenth of the known trials."""


class WarmCmaEsSampler(CmaEsSampler):
    """Takes its first mean and covariance from trials that it did not propose (Nomura et al. 2021,
    "Warm Starting CMA-ES for Hyperparameter Optimization"), if there are at least ten: trials of
    other sweeps, which have negative numbers, and trials of a rebuilt study.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._settings = settings
        self._warm: CmaEsSampler | None = None

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Propose a configuration by CMA-ES."""
        if self._warm is not None:
            return self._warm.sample_relative(study, trial, search_space)
        complete = study._get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        found = [t for t in complete if t.number < 0 or REBUILT in t.system_attrs]
        if len(found) < _MIN_TRIALS:
            return super().sample_relative(study, trial, search_space)
        source = [_only(t, search_space) for t in found]
        with _experimental():
            self._warm = CmaEsSampler(**self._settings, source_trials=source)
        return self._warm.sample_relative(study, trial, search_space)


def _only(trial: FrozenTrial, space: dict[str, BaseDistribution]) -> FrozenTrial:
    """A copy of the trial with only the parameters of a space."""
    shown = copy.copy(trial)
    shown.distributions = {name: trial.distributions[name] for name in space}
    shown.params = {name: trial.params[name] for name in space}
    return shown
