"""The outcome of a trial as Optuna has it: its state, its values and its reports."""

from __future__ import annotations

from collections.abc import Sequence

from optuna.trial import FrozenTrial, create_trial
from optuna.trial import TrialState as OptunaState

from results.analysis.pareto import comparable
from results.analysis.replicates import Curve
from results.records.trial import TrialRecord, TrialState
from search_spaces.spec.sweep import SweepSpec
from tuning.search.compatibility import compatible_params
from tuning.search.optuna_space import OptunaSpace
from tuning.search.searchers import REBUILT

STATES = {
    TrialState.COMPLETED: OptunaState.COMPLETE,
    TrialState.STOPPED: OptunaState.PRUNED,
    TrialState.FAILED: OptunaState.FAIL,
}
"""Of trials that have ended."""


class Outcomes:
    """The outcomes of a sweep's trials.

    The arguments of the methods are those of `SweepStudy.tell`. Values are `comparable`.

    Args:
        spec: of the sweep.
        space: as Optuna has it.
    """

    def __init__(self, spec: SweepSpec, space: OptunaSpace) -> None:
        self._spec, self._space = spec, space
        self.several = len(spec.objectives) > 1
        """Whether the sweep has several objectives: Optuna then stores no reports."""

    def final_outcome(
        self, record: TrialRecord, curve: Curve, finals: Sequence[float] | None
    ) -> tuple[Curve, OptunaState, list[float] | None]:
        """Reports, state and values with which a trial ends."""
        if record.config_failed:  # pruned before its first report, which Optuna ranks as worst
            return [], OptunaState.PRUNED, None
        reported = [] if self.several else _comparable(curve)
        state, values = self._state(record, curve, finals)
        if state is OptunaState.PRUNED and reported:  # as Optuna's `tell` has it
            values = [reported[-1][1]]
        return reported, state, values

    def _state(
        self, record: TrialRecord, curve: Curve, finals: Sequence[float] | None
    ) -> tuple[OptunaState, list[float] | None]:
        """State and values; FAIL if an objective has no value, or reports are lost."""
        state = STATES.get(record.state, OptunaState.RUNNING)
        if state is not OptunaState.COMPLETE:
            return state, None
        values = list(finals or ()) if self.several else [v for _, v in _comparable(curve[-1:])]
        return (state, values) if values else (OptunaState.FAIL, None)

    def as_trial(
        self, record: TrialRecord, curve: Curve, finals: Sequence[float] | None
    ) -> FrozenTrial:
        """The whole trial, for a study that lacks it."""
        params = compatible_params(self._spec, record)
        if params is None:  # of an earlier space: keep the number, without evidence
            return create_trial(state=OptunaState.FAIL)
        if record.lineage:  # as proposed, before it copied another trial's weights
            params = record.lineage[0].before
        reported, state, values = self.final_outcome(record, curve, finals)
        sampled, distributions = self._space.encoded(params)
        return create_trial(
            state=state,
            values=values,
            params=sampled,
            distributions=distributions,
            intermediate_values=dict(reported),
            constraints=record.violations,
            system_attrs={REBUILT: True},
        )


def _comparable(curve: Curve) -> Curve:
    return [(step, comparable(value)) for step, value in curve]
