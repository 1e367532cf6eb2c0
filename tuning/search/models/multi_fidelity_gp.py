"""A Gaussian process over all rungs: the model that `auto` uses in numeric spaces."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from optuna import Study
from optuna.distributions import BaseDistribution
from optuna.samplers import RandomSampler
from optuna.trial import FrozenTrial

from search_spaces.spec.search import SearchSpec
from tuning.search.evidence import Evidence
from tuning.search.models.fidelity import Comparable, comparable
from tuning.search.models.gp import GaussianProcess, expected_improvement, standardise
from tuning.search.models.unit_cube import Cube

Array = NDArray[np.float64]

_POINTS, _POINTS_BEST = 150, 50
_RANDOM, _NEAR, _BEST = 600, 40, 8
_STEPS = (0.2, 0.05)
_RIDGE, _LEAST = 1e-2, 1e-300
_RANDOM_SHARE_IF_MISLEADING = 0.5


@dataclass(frozen=True)
class _AtTarget:
    """A model of all rungs, evaluated at the target rung.

    Attributes:
        process: over points of the cube, with the rung as an additional coordinate.
        share: coordinate of the target rung, in [0, 1].
        best: highest predicted mean of the tried configurations.
    """

    process: GaussianProcess
    share: float
    best: float = 0.0

    def mean(self, x: Array) -> Array:
        """(m,), at points (m, width) of the cube."""
        return self.process.predict(_at(x, self.share))[0]

    def merit(self, x: Array) -> Array:
        """Expected improvement (m,) over `best`."""
        return expected_improvement(*self.process.predict(_at(x, self.share)), self.best)


class MultiFidelitySampler(RandomSampler):
    """Maximizes expected improvement at the highest rung that enough trials reached.

    One process models the values of all rungs, shifted by the median improvement between rungs
    (`tuning.search.models.fidelity`). Its kernel length along the rungs learns how much they agree
    (Klein et al. 2020, MOBSTER). Pending trials get the model's prediction as their value. A share
    of the proposals is random; half of them if the order at a rung contradicts the next one. No
    configuration is proposed twice, as long as the space has another one (`UNIQUE`).
    """

    def __init__(self, spec: SearchSpec, seed: int, evidence: Evidence) -> None:
        super().__init__(seed)
        self._spec, self._evidence = spec, evidence
        self._generator = np.random.default_rng(seed)
        self._cube = Cube(evidence.space)
        self._ranked: deque[Array] | None = None

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """Every parameter of every option; which ones are active is known later."""
        return dict(self._cube.space)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: Mapping[str, BaseDistribution]
    ) -> dict[str, Any]:
        """The best candidate; the next best one if it violated a constraint."""
        if self._ranked is None:
            self._ranked = deque(self._candidates())
        while self._ranked:
            sampled = self._cube.decode(self._ranked.popleft())
            if not self._evidence.repeats(sampled):
                return sampled
        return {}

    def _candidates(self) -> Array:
        """(m, parameters), shares of candidate configurations, best first; empty for a random
        proposal.
        """
        share, trials = self._generator.random(), self._evidence.trials
        nothing = np.zeros((0, len(self._cube.space)))
        usable = [t for t in trials if t.curve and not t.failed]
        if len(usable) < max(2, self._spec.startup_trials) or not self._cube.space:
            return nothing
        known = comparable([t.curve for t in usable], self._evidence.levels)
        infeasible = np.array([t.infeasible for t in usable])[known.index]
        if infeasible.any():  # such a trial cannot win, however good it is
            known = replace(known, value=np.where(infeasible, known.value.min(), known.value))
        least = _RANDOM_SHARE_IF_MISLEADING if known.misleads else 0.0
        if len(known.value) < 2 or share < max(self._spec.random_share, least):
            return nothing
        params = [t.params for t in usable]
        tried = self._cube.encode(params)
        model = self._model(tried, known)
        taken = [params[i] for i in np.argsort(-model.mean(tried))[:_BEST]]
        anywhere = self._generator.random((_RANDOM, len(self._cube.space)))
        shares = np.concatenate([anywhere, self._perturb(self._cube.shares(taken), _STEPS[0])])
        x = self._cube.points(shares)
        merit_of = self._weighed(model)
        merit = merit_of(x)
        for step in _STEPS:
            near = self._perturb(shares[np.argsort(-merit)[:_BEST]], step)
            near_x = self._cube.points(near)
            shares, x = np.concatenate([shares, near]), np.concatenate([x, near_x])
            merit = np.concatenate([merit, merit_of(near_x)])
        seen = {point.tobytes() for point in self._cube.encode([t.params for t in trials])}
        return shares[[i for i in np.argsort(-merit) if x[i].tobytes() not in seen]]

    def _model(self, tried: Array, known: Comparable) -> _AtTarget:
        """Fit the model to configurations (curves, width) and their comparable values."""
        kept, highest = self._subsample(known), max(1, len(self._evidence.levels) - 1)
        y, _ = standardise(known.value[kept])
        x = _at(tried[known.index[kept]], known.level[kept] / highest)
        model = _AtTarget(GaussianProcess.fit(x, y), known.target / highest)
        waiting = [t.params for t in self._evidence.trials if not t.curve and not t.over]
        pending = _at(self._cube.encode(waiting), model.share)
        best = float(model.mean(tried).max())
        return _AtTarget(model.process.with_believed(pending), model.share, best)

    def _weighed(self, model: _AtTarget) -> Callable[[Array], Array]:
        """The merit of points (m, width): expected improvement, per predicted second of a step if
        the search is `cost_aware` (Snoek et al. 2012). The exponent of the seconds falls with the
        number of trials, as in CArBO (Lee et al. 2020). Seconds are a product of powers.
        """
        timed = [t for t in self._evidence.trials if t.step_seconds > 0]
        if not self._spec.cost_aware or len(timed) < 2:
            return model.merit
        x = self._cube.encode([t.params for t in timed])
        y = np.log([t.step_seconds for t in timed])
        x -= x.mean(axis=0)
        slopes = np.linalg.solve(x.T @ x + _RIDGE * np.eye(self._cube.width), x.T @ (y - y.mean()))
        slopes *= min(1.0, 2 * self._spec.startup_trials / len(self._evidence.trials))
        return lambda x: np.log(np.maximum(model.merit(x), _LEAST)) - x @ slopes

    def _subsample(self, known: Comparable) -> NDArray[np.int64]:
        """Indices of few enough values to keep a proposal cheap: the best, then those of the
        highest levels; the last level is sampled.
        """
        if len(known.value) <= _POINTS:
            return np.arange(len(known.value))
        best = np.argsort(-known.value, kind="stable")[:_POINTS_BEST]
        order = np.lexsort((self._generator.random(len(known.value)), -known.level))
        return np.union1d(best, order[: _POINTS - _POINTS_BEST])

    def _perturb(self, centres: Array, step: float) -> Array:
        """Shares that differ from each centre (n, parameters) in some parameters."""
        at = np.repeat(centres, _NEAR, axis=0)
        moved = self._generator.random(at.shape) < max(0.4, 1.5 / at.shape[1])
        here = at + moved * self._generator.normal(0.0, step, at.shape)
        return np.asarray(np.clip(here, 0.0, 1.0 - 1e-12))


def _at(x: Array, share: float | Array) -> Array:
    """Append the coordinate of the rung to points of the cube."""
    return np.column_stack([x, np.broadcast_to(share, len(x))])
