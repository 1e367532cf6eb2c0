"""Searchers that learn nothing: a proposal depends only on its number."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from optuna import Study
from optuna._transform import _SearchSpaceTransform
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, RandomSampler
from optuna.trial import FrozenTrial

from search_spaces.spec.search import SearchSpec
from tuning.search.evidence import Evidence
from tuning.search.models.unit_cube import Array, Cube

_BLOCK = 256
_MANY = 1000

_thread = threading.local()


def random(spec: SearchSpec, seed: int, evidence: Evidence) -> BaseSampler:
    """Independent random values."""
    return _seeded_random(seed)


def grid(spec: SearchSpec, seed: int, evidence: Evidence) -> BaseSampler:
    """Every combination in order: `SweepSpec.grid_points` sets every parameter."""
    return _seeded_random(seed)


def _seeded_random(seed: int) -> _Random:
    """One sampler for each thread, because a new one takes 0.1 ms for entropy."""
    if not hasattr(_thread, "sampler"):
        _thread.sampler = _Random(seed)
    sampler: _Random = _thread.sampler
    sampler._rng.rng.seed(seed)
    return sampler


class _Random(RandomSampler):
    """Draws the values that Optuna draws, and derives the bounds of a distribution only once."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._known: dict[int, tuple[BaseDistribution, _SearchSpaceTransform]] = {}

    def sample_independent(
        self,
        study: Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """See the base class."""
        if len(self._known) > _MANY:  # distributions of many sweeps
            self._known.clear()
        known = self._known.get(id(param_distribution))
        if known is None:  # equal ones may differ: the categories 1 and True
            known = param_distribution, _SearchSpaceTransform({param_name: param_distribution})
            self._known[id(param_distribution)] = known
        bounds = known[1].bounds
        drawn = self._rng.rng.uniform(bounds[:, 0], bounds[:, 1])
        (value,) = known[1].untransform(drawn).values()
        return value


class SobolSampler(BaseSampler):
    """A scrambled Sobol sequence (Owen 1998); covers the space more evenly than random samples."""

    def __init__(self, spec: SearchSpec, seed: int, evidence: Evidence) -> None:
        self._evidence, self._seed = evidence, seed
        self._random: _Random | None = None
        self._called = False

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """Every parameter of every option; which ones are active is known later."""
        return {k: d for k, d in self._evidence.space.items() if not d.single()}

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: Mapping[str, BaseDistribution]
    ) -> dict[str, Any]:
        """The configuration of this number; random if it violated a constraint."""
        first, self._called = not self._called, True
        if not first or not search_space:
            return {}
        cube, (block, place) = Cube(search_space), divmod(self._evidence.number, _BLOCK)
        return cube.decode(_sobol(len(cube.space), self._evidence.base_seed, block)[place])

    def sample_independent(
        self, study: Study, trial: FrozenTrial, name: str, distribution: BaseDistribution
    ) -> Any:
        """At random."""
        self._random = self._random or _seeded_random(self._seed)
        return self._random.sample_independent(study, trial, name, distribution)


@lru_cache(maxsize=8)
def _sobol(dimensions: int, seed: int, block: int) -> Array:
    """Points (`_BLOCK`, dimensions) of the sequence, all at once: scrambling it takes long."""
    from scipy.stats.qmc import Sobol

    sequence = Sobol(dimensions, scramble=True, rng=seed)
    if block:
        sequence.fast_forward(block * _BLOCK)
    return np.asarray(sequence.random(_BLOCK))
