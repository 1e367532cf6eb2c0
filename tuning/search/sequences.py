"""Searchers that learn nothing: a proposal depends only on its number."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from optuna import Study
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, RandomSampler
from optuna.trial import FrozenTrial

from search_spaces.spec.search import SearchSpec
from tuning.search.evidence import Evidence
from tuning.search.models.unit_cube import Array, Cube

_BLOCK = 256


def random(spec: SearchSpec, seed: int, evidence: Evidence) -> BaseSampler:
    """Independent random values."""
    return RandomSampler(seed)


def grid(spec: SearchSpec, seed: int, evidence: Evidence) -> BaseSampler:
    """Every combination in order: `SweepSpec.grid_points` sets every parameter."""
    return RandomSampler(seed)


class SobolSampler(RandomSampler):
    """A scrambled Sobol sequence (Owen 1998); covers the space more evenly than random samples."""

    def __init__(self, spec: SearchSpec, seed: int, evidence: Evidence) -> None:
        super().__init__(seed)
        self._evidence, self._called = evidence, False

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


@lru_cache(maxsize=8)
def _sobol(dimensions: int, seed: int, block: int) -> Array:
    """Points (`_BLOCK`, dimensions) of the sequence, all at once: scrambling it takes long."""
    from scipy.stats.qmc import Sobol

    sequence = Sobol(dimensions, scramble=True, rng=seed)
    if block:
        sequence.fast_forward(block * _BLOCK)
    return np.asarray(sequence.random(_BLOCK))
