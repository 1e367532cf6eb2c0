"""Finds configurations that were proposed before.

The values that a trial gets are compared. Optuna's samples may differ where quantisation makes the
values equal, and in parameters that are not active.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from optuna.trial import FrozenTrial

from tuning.search.optuna_domains import only_sample
from tuning.search.optuna_space import OptunaSpace


class Proposed:
    """The configurations of earlier proposals."""

    def __init__(self, space: OptunaSpace) -> None:
        self._space = space
        self._constants = {
            name: only_sample(dist) for name, dist in space.distributions.items() if dist.single()
        }
        self._known: dict[int, str] = {}
        self._before: frozenset[str] = frozenset()

    def show(self, trials: Iterable[FrozenTrial]) -> None:
        """Set what was proposed before: the configurations of these trials."""
        self._before = frozenset(self._text_of(trial) for trial in trials if trial.params)

    def holds(self, params: Mapping[str, Any]) -> bool:
        """Whether a configuration, by dotted name, was proposed before."""
        return _text(params) in self._before

    def holds_sample(self, sampled: Mapping[str, Any]) -> bool:
        """Whether the configuration of a sample of every parameter was proposed before."""
        params = self._space.params({**self._constants, **sampled})
        return params is not None and self.holds(params)

    def _text_of(self, trial: FrozenTrial) -> str:
        if trial.number in self._known:
            return self._known[trial.number]
        params = self._space.params(trial.params)
        if params is None:  # a driver that was killed had not written all of them
            return ""
        if trial.number >= 0:  # findings of other sweeps may get other numbers
            self._known[trial.number] = _text(params)
        return _text(params)


def _text(params: Mapping[str, Any]) -> str:
    return repr(sorted(params.items()))
