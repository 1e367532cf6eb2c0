"""Trials of other sweeps, which a sampler sees beside the sweep's own.

Findings of the same task keep their values. Of another task (other training code, data, metrics or
training length) only the ranks are used, per objective: each finding becomes a complete trial whose
values have the same ranks among the sweep's own values, so that scales never mix.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import optuna
from optuna.trial import FrozenTrial, TrialState, create_trial
from pydantic import BaseModel, ConfigDict

from search_spaces.spec.sweep import SweepSpec
from tuning.search.compatibility import params_in_space
from tuning.search.evidence import Evidence
from tuning.search.models.fidelity import comparable
from tuning.search.optuna_space import OptunaSpace


class Finding(BaseModel):
    """A trial of another sweep that completed, was stopped early or is paused.

    Attributes:
        source: sweep and trial, for messages: `digits/t0003`.
        folder: of the trial.
        params: searched parameters by dotted name.
        config: the trainable's whole configuration, nested.
        complete: whether it was not stopped early.
        curve: (step of the scheduler's clock, value), ascending, never empty: of the learning
            sweep's first objective, or of the objective that replaces it.
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
            self._made = len(own), [numbered(t, n) for n, t in enumerate(made, -len(made))]
        return self._made[1]

    def _trial(
        self, found: Finding, params: dict[str, Any], own: Sequence[Sequence[float]]
    ) -> FrozenTrial:
        sampled, distributions = self._space.encoded(params)
        if found.same:
            curve, values = dict(found.curve), found.values
        else:
            columns = list(zip(*own, strict=True)) or [()] * len(found.ranks)
            goals = zip(found.ranks, columns, self._spec.objectives, strict=True)
            values = [value_of_rank(rank, column, goal.mode) for rank, column, goal in goals]
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


def numbered(trial: FrozenTrial, number: int) -> FrozenTrial:
    """The trial with this number, which is its id too."""
    return FrozenTrial(
        number=number,
        trial_id=number,
        state=trial.state,
        value=None,
        values=trial.values,
        datetime_start=trial.datetime_start,
        datetime_complete=trial.datetime_complete,
        params=trial.params,
        distributions=trial.distributions,
        user_attrs=trial.user_attrs,
        system_attrs=trial.system_attrs,
        intermediate_values=trial.intermediate_values,
    )


def value_of_rank(rank: float, own: Sequence[float], mode: str) -> float:
    """The value at a rank (0 is the best, 1 the worst) among the sweep's own values.

    With fewer than two own values: their mean, shifted by the distance of the rank from 0.5.
    """
    worse = 1.0 if mode == "min" else -1.0
    if len(own) < 2:
        return float(sum(own) + worse * (rank - 0.5))
    return float(np.quantile(own, rank if mode == "min" else 1 - rank))


class StudyWithPriors(optuna.Study):
    """The study that a sampler sees; to count or list trials, use the plain one of its storage.

    Optuna's samplers use the values of complete trials, and of pruned ones at any step. If a
    scheduler stops or pauses trials, these are few, or mix fidelities and mislead. So samplers see
    an estimate of each trial's value at the highest rung that enough trials reached.
    """

    findings: Findings | None = None
    visible: Sequence[FrozenTrial] | None = None
    """The sweep's own trials that the sampler sees; None: all of the storage."""
    _shown: dict[int, FrozenTrial] | None = None

    def show_comparable(self, trials: Sequence[FrozenTrial], evidence: Evidence) -> None:
        """Show these trials with comparable values from now on; unchanged if no trial is stopped.

        Args:
            trials: in the same order as `evidence.trials`, which has their curves.
            evidence: see `comparable`.
        """
        self._shown = None
        usable = [i for i, seen in enumerate(evidence.trials) if seen.curve and not seen.failed]
        if not evidence.levels or not usable:
            return
        known = comparable([evidence.trials[i].curve for i in usable], evidence.levels)
        index, values = known.newest()
        sign = 1.0 if self.direction is optuna.study.StudyDirection.MAXIMIZE else -1.0
        self._shown = {
            trials[usable[i]].number: _complete(trials[usable[i]], sign * float(value))
            for i, value in zip(index, values, strict=True)
        }

    def start_first_generation(self, trials: Sequence[FrozenTrial], key: str) -> None:
        """Put complete trials that a genetic algorithm did not propose into its first generation:
        those of other sweeps, of an earlier space or of another searcher.

        Args:
            trials: candidates.
            key: system attribute in which the algorithm stores a trial's generation.
        """
        found = [t for t in trials if t.state is TrialState.COMPLETE and key not in t.system_attrs]
        self._shown = {trial.number: copy.copy(trial) for trial in found}
        for trial in self._shown.values():
            trial.system_attrs = {**trial.system_attrs, key: 0}

    def _get_trials(
        self,
        deepcopy: bool = True,
        states: Any = None,
        use_cache: bool = False,
    ) -> list[FrozenTrial]:
        own = self.visible
        if own is None:
            own = super()._get_trials(deepcopy, None, use_cache)
        found: list[FrozenTrial] = []
        if self.findings is not None and len(self.findings):
            complete = (t for t in own if t.state is TrialState.COMPLETE)
            found = self.findings.trials([t.values for t in complete])
        judged = self._shown or {}
        shown = [judged.get(t.number, t) for t in (*found, *own)]
        return [t for t in shown if states is None or t.state in states]


def _complete(trial: FrozenTrial, value: float) -> FrozenTrial:
    """A copy of the trial, completed with a value."""
    shown = FrozenTrial.__new__(FrozenTrial)  # `copy.copy` takes ten times as long
    shown.__dict__.update(trial.__dict__)
    shown.state, shown.value = TrialState.COMPLETE, value
    return shown
