"""A Gaussian process over all rungs: the model that `auto` uses in numeric spaces."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from optuna import Study
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, RandomSampler
from optuna.trial import FrozenTrial

from search_spaces.schema import SearchSpec
from tuning.search.cube import Cube
from tuning.search.evidence import Evidence
from tuning.search.fidelity import Comparable, comparable
from tuning.search.gp import GaussianProcess, expected_improvement, standardised

Array = NDArray[np.float64]

_POINTS = 150
_RANDOM, _NEAR, _BEST = 600, 40, 8
_STEPS = (0.2, 0.05)
_WARY = 0.5
_START_LEVEL = 2


class MultiFidelitySampler(BaseSampler):
    """Expected improvement at the highest rung that enough trials reached.

    Values of lower rungs count as far as they foretell it (`tuning.search.fidelity`), trials that
    have no value yet are believed to turn out as the model says. It begins when a trial has come to
    the third rung. A share of all proposals is random, half of them when a rung's order contradicts
    the next one's. No configuration is proposed twice.
    """

    def __init__(self, spec: SearchSpec, seed: int, evidence: Evidence) -> None:
        self._spec, self._evidence = spec, evidence
        self._rng = np.random.default_rng(seed)
        self._independent = RandomSampler(seed=seed)
        self._cube = Cube(evidence.space)
        self._ranked: deque[Array] | None = None

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """Every parameter of every option: which are active is known only later."""
        return dict(self._cube.space)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: Mapping[str, BaseDistribution]
    ) -> dict[str, Any]:
        """The best candidate; asked again (it broke a constraint), the next best."""
        if self._ranked is None:
            self._ranked = deque(self._candidates())
        return self._cube.decode(self._ranked.popleft()) if self._ranked else {}

    def sample_independent(
        self, study: Study, trial: FrozenTrial, name: str, distribution: BaseDistribution
    ) -> Any:
        """At random."""
        return self._independent.sample_independent(study, trial, name, distribution)

    def _candidates(self) -> Array:
        """(m, parameters), shares of configurations, best first; none when this proposal is to be
        random.
        """
        share, trials = self._rng.random(), self._evidence.trials
        nothing = np.zeros((0, len(self._cube.space)))
        if len(trials) < self._spec.startup_trials or not self._cube.space:
            return nothing
        usable = [t for t in trials if t.curve and not t.failed]
        known = comparable([t.curve for t in usable], self._evidence.levels)
        if not self._begins(known) or share < self._share(known):
            return nothing
        params = [t.params for t in usable]
        pending = self._cube.encode([t.params for t in trials if not t.curve and not t.over])
        model, best = self._model(self._cube.encode(params)[known.index], known, pending)
        taken = [params[i] for i in known.index[np.argsort(-known.value)[:_BEST]]]
        shares = self._drawn(self._cube.shares(taken))
        x = self._cube.points(shares)
        merit = expected_improvement(*model.predict(x), best)
        for step in _STEPS:
            near = self._near(shares[np.argsort(-merit)[:_BEST]], step)
            near_x = self._cube.points(near)
            shares, x = np.concatenate([shares, near]), np.concatenate([x, near_x])
            merit = np.concatenate([merit, expected_improvement(*model.predict(near_x), best)])
        seen = {point.tobytes() for point in self._cube.encode([t.params for t in trials])}
        return shares[[i for i in np.argsort(-merit) if x[i].tobytes() not in seen]]

    def _begins(self, known: Comparable) -> bool:
        """Whether enough is known: somebody at the third rung, or at the last of fewer."""
        start = min(_START_LEVEL, len(self._evidence.levels) - 1)
        return len(known.value) >= 2 and int(known.level.max(initial=0)) >= max(start, 0)

    def _share(self, known: Comparable) -> float:
        return max(self._spec.random_share, _WARY if known.misleads else 0.0)

    def _model(self, x: Array, known: Comparable, pending: Array) -> tuple[GaussianProcess, float]:
        """The model, and its best mean among what was tried."""
        kept = self._thinned(known)
        y, scale = standardised(known.value[kept])
        model = GaussianProcess.fit(x[kept], y, known.noise[kept] / scale**2)
        best = float(model.predict(x[kept])[0].max())
        return model.with_believed(pending), best

    def _thinned(self, known: Comparable) -> NDArray[np.int64]:
        """So many that a proposal stays cheap: the highest levels whole, the rest drawn."""
        if len(known.value) <= _POINTS:
            return np.arange(len(known.value))
        order = np.lexsort((self._rng.random(len(known.value)), -known.level))
        return np.sort(order[:_POINTS])

    def _drawn(self, best: Array) -> Array:
        """Shares of candidates from the whole space and from around the best trials."""
        anywhere = self._rng.random((_RANDOM, len(self._cube.space)))
        return np.concatenate([anywhere, self._near(best, _STEPS[0])])

    def _near(self, centres: Array, step: float) -> Array:
        """Shares that differ from each centre (n, parameters) in some parameters."""
        at = np.repeat(centres, _NEAR, axis=0)
        moved = self._rng.random(at.shape) < max(0.4, 1.5 / at.shape[1])
        here = at + moved * self._rng.normal(0.0, step, at.shape)
        return np.asarray(np.clip(here, 0.0, 1.0 - 1e-12))
