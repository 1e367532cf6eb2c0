"""The outcome of a trial as Optuna has it: its state, its values and its reports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from optuna.trial import TrialState as OptunaState

from results.analysis.replicates import Curve
from results.records.trial import TrialRecord, TrialState

STATES = {
    TrialState.COMPLETED: OptunaState.COMPLETE,
    TrialState.STOPPED: OptunaState.PRUNED,
    TrialState.FAILED: OptunaState.FAIL,
}
"""Of trials that have ended."""


@dataclass(frozen=True)
class Outcomes:
    """The outcomes of a sweep's trials.

    The arguments of the methods are those of `SweepStudy.tell`.

    Attributes:
        several: whether it has several objectives: Optuna then stores no reports.
    """

    several: bool

    def of(
        self, record: TrialRecord, curve: Curve, finals: Sequence[float] | None
    ) -> tuple[OptunaState, list[float] | None]:
        """State and values; FAIL if an objective has no value, or reports are lost."""
        state = STATES.get(record.state, OptunaState.RUNNING)
        if state is not OptunaState.COMPLETE:
            return state, None
        values = list(finals or ()) if self.several else [value for _, value in curve[-1:]]
        return (state, values) if values else (OptunaState.FAIL, None)

    def told(
        self, record: TrialRecord, curve: Curve, finals: Sequence[float] | None
    ) -> tuple[Curve, OptunaState, list[float] | None]:
        """Reports, state and values with which a trial ends."""
        if record.config_failed:  # pruned before its first report, which Optuna ranks as worst
            return [], OptunaState.PRUNED, None
        reported = [] if self.several else curve
        state, values = self.of(record, curve, finals)
        if state is OptunaState.PRUNED and reported:  # as Optuna's `tell` has it
            values = [reported[-1][1]]
        return reported, state, values
