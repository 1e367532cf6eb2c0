"""Trials of other sweeps, which a sampler sees beside the sweep's own.

Findings of the same task keep their values. Of another task (other training code, data, metrics or
training length) only the ranks are used, per objective: each finding becomes a complete trial whose
values have the same ranks among the sweep's own values, so that scales never mix.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from optuna.trial import FrozenTrial, TrialState, create_trial
from pydantic import BaseModel, ConfigDict

from search_spaces.spec.sweep import SweepSpec
from tuning.search.compatibility import params_in_space
from tuning.search.optuna_space import OptunaSpace


class Finding(BaseModel):
    """A trial of another sweep that completed, was stopped early or is paused.

    Attributes:
        source: sweep and trial, for messages: `digits/t0003`.
        folder: of the trial.
        params: searched parameters by dotted name.
        config: the trainable's whole configuration, nested.
        complete: whether it was not stopped early.
        curve: (step, value), ascending, never empty: of the learning sweep's first objective, or
            of the objective that replaces it.
        values: last value of each objective; empty if only ranks count.
        ranks: in its sweep by each objective, from 0 (best) to 1 (worst).
        identity, violations: see `TrialRecord`.
    """

    model_config = ConfigDict(frozen=True)

    source: str
    folder: str
    params: dict[str, Any]
    config: dict[str, Any]
    complete: bool
    curve: list[tuple[int, float]]
    values: list[float]
    ranks: list[float]
    identity: str = ""
    violations: dict[str, float] = {}

    @property
    def same(self) -> bool:
        """Whether its sweep had the same task."""
        return bool(self.values)


class Findings:
    """The findings that fit a space, for its sampler."""

    def __init__(self, spec: SweepSpec, space: OptunaSpace, found: Sequence[Finding]) -> None:
        self._spec, self._space = spec, space
        pairs = ((f, params_in_space(spec, f.params, f.config)) for f in found)
        self._found = [(f, params) for f, params in pairs if params]
        self._made: tuple[int, list[FrozenTrial]] = (-1, [])

    def __len__(self) -> int:
        return len(self._found)

    def trials(self, own: Sequence[Sequence[float]]) -> list[FrozenTrial]:
        """The findings as Optuna trials with negative numbers, up to -1.

        Args:
            own: for each completed trial of the sweep itself, its values per objective.
        """
        if self._made[0] != len(own):
            made = [self._trial(f, params, own) for f, params in self._found]
            for number, trial in enumerate(made, -len(made)):
                trial.number = trial._trial_id = number
            self._made = len(own), made
        return self._made[1]

    def _trial(
        self, found: Finding, params: dict[str, Any], own: Sequence[Sequence[float]]
    ) -> FrozenTrial:
        sampled, distributions = self._space.encoded(params)
        if found.same:
            curve, values = dict(found.curve), found.values
        else:
            values = self._placed(found.ranks, own)
            curve = {self._spec.scheduler.max_t or found.curve[-1][0]: values[0]}
        complete = found.complete or not found.same
        return create_trial(
            state=TrialState.COMPLETE if complete else TrialState.PRUNED,
            values=values if complete else None,
            params=sampled,
            distributions=distributions,
            intermediate_values={} if len(values) > 1 else curve,
            constraints=found.violations,
        )

    def _placed(self, ranks: Sequence[float], own: Sequence[Sequence[float]]) -> list[float]:
        """The values at the ranks of each objective."""
        columns = list(zip(*own, strict=True)) or [()] * len(ranks)
        goals = zip(ranks, columns, self._spec.objectives, strict=True)
        return [value_of_rank(rank, column, goal.mode) for rank, column, goal in goals]


def value_of_rank(rank: float, own: Sequence[float], mode: str) -> float:
    """The value at a rank (0 is the best, 1 the worst) among the sweep's own values.

    With fewer than two own values: their mean, shifted by the distance of the rank from 0.5.
    """
    worse = 1.0 if mode == "min" else -1.0
    if len(own) < 2:
        return float(sum(own) + worse * (rank - 0.5))
    return float(np.quantile(own, rank if mode == "min" else 1 - rank))
