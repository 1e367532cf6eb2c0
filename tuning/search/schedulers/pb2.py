"""PBT that chooses new parameters with a model of the population's improvement."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from tuning.search.models.gp import GaussianProcess, standardise
from tuning.search.schedulers.base import History
from tuning.search.schedulers.pbt import Pbt, mutable_domains, share_of, value_at_share

_CANDIDATES = 512
_CONFIDENCE = 1.5
_NEWEST = 150


class Pb2(Pbt):
    """Population based bandits (Parker-Holder et al. 2020): a Gaussian process over generation and
    parameters predicts the change of the score in a generation; the candidate with the highest
    upper confidence bound is taken.
    """

    def _explore(
        self,
        taken: dict[str, Any],
        generation: int,
        history: Callable[[str], History],
        rng: np.random.Generator,
    ) -> dict[str, Any]:
        """The donor's parameters; mutable ones at the model's highest upper confidence bound."""
        domains = mutable_domains(self._spec, self._domains, taken)
        seen = self._changes(list(domains), history)[-_NEWEST:]
        if len(seen) < 2 or not domains:
            return super()._explore(taken, generation, history, rng)
        end = max(self._rungs)
        x = np.array(
            [[g / end, *(share_of(d, p[n]) for n, d in domains.items())] for g, p, _ in seen]
        )
        y, _ = standardise(np.array([change for _, _, change in seen]))
        model = GaussianProcess.fit(x, y)
        shares = rng.random((_CANDIDATES, len(domains)))
        when = np.full((_CANDIDATES, 1), (generation + min(self._rungs)) / end)
        mean, std = model.predict(np.hstack([when, shares]))
        best = shares[int(np.argmax(mean + _CONFIDENCE * std))]
        drawn = {
            n: value_at_share(d, float(s)) for (n, d), s in zip(domains.items(), best, strict=True)
        }
        return {**taken, **drawn}

    def _changes(
        self, names: list[str], history: Callable[[str], History]
    ) -> list[tuple[int, dict[str, Any], float]]:
        """(generation, parameters in it, change of the score over it), by generation."""
        ends = sorted(self._rungs)
        found = []
        for before, after in pairwise(ends):
            for trial, scores in sorted(self._rungs[after].items()):
                era = next((e for e in reversed(history(trial)) if e.since < after), None)
                if era is None or not all(n in era.params for n in names):
                    continue
                start = era.donor if era.donor is not None and era.since >= before else trial
                change = scores[0] - self._rungs[before].get(start, (math.nan,))[0]
                if math.isfinite(change):
                    found.append((after, dict(era.params), change))
        return found
