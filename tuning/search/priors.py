"""Proposals around the values that people believe in: `lr: {loguniform: [1e-5, 0.1], prior: 3e-4}`.

As in PriorBand (Mallik et al. 2023, arXiv:2306.12370), a share of the proposals is drawn around the
prior. The share falls with the number of trials, so that a wrong prior costs little.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from optuna import Study
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.samplers import RandomSampler
from optuna.trial import FrozenTrial

from search_spaces.domains.conditional import parameters
from search_spaces.domains.domain import Domain
from search_spaces.spec.sweep import SweepSpec
from tuning.search.models.unit_cube import Cube
from tuning.search.optuna_domains import encode
from tuning.search.optuna_space import OptunaSpace
from tuning.search.searchers import READS_VALUES, UNIQUE

HAVE_PRIORS = ("random", *READS_VALUES, *UNIQUE)
"""Searchers that draw around priors; all others only start from them."""
_SHARE, _FIRST = 0.5, 10
"""The share of the first proposals; from then on it falls with their number."""
_SPREAD = 0.15
"""Standard deviation around a prior, as a share of its domain (or of its logarithm)."""


def prior_point(spec: SweepSpec) -> dict[str, Any]:
    """The prior of each parameter that has one, by dotted name."""
    return {name: domain.priors[0] for name, domain in spec.domains().items() if domain.priors}


def encoded_priors(spec: SweepSpec, space: OptunaSpace) -> dict[str, Any]:
    """The prior of each parameter of every option, as Optuna has them."""
    leaves = [(p.name, p.leaf) for p in parameters(spec.space) if isinstance(p.leaf, Domain)]
    return {space.key(n, d): encode(d, d.priors[0]) for n, d in leaves if d.priors}


def uses_prior(seed: int, number: int) -> bool:
    """Whether a proposal is drawn around the priors.

    Args:
        seed: of the proposal.
        number: of the proposal, from 0.
    """
    share = _SHARE * min(1.0, _FIRST / max(1, number))
    return bool(np.random.default_rng([seed, 1]).random() < share)


class PriorSampler(RandomSampler):
    """Draws parameters around their priors, and others at random.

    Args:
        priors: value by Optuna's name.
        seed: of the proposal.
    """

    def __init__(self, priors: Mapping[str, Any], seed: int) -> None:
        super().__init__(seed)
        self._priors, self._generator = priors, np.random.default_rng([seed, 2])

    def sample_independent(
        self, study: Study, trial: FrozenTrial, name: str, distribution: BaseDistribution
    ) -> Any:
        """A normal sample around the prior, cut at the ends; of categories the prior or any."""
        categorical = isinstance(distribution, CategoricalDistribution)
        if name not in self._priors or (categorical and self._generator.random() < _SHARE):
            return super().sample_independent(study, trial, name, distribution)
        cube = Cube({name: distribution})
        if categorical or not cube.space:
            return self._priors[name]
        share = cube.shares([{name: self._priors[name]}])[0] + self._generator.normal(0.0, _SPREAD)
        return cube.decode(np.clip(share, 0.0, 1.0 - 1e-12))[name]
