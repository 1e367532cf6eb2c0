"""The study that a sampler sees: with findings of other sweeps, and with comparable values for
incomplete trials.

Optuna's samplers use the values of complete trials, and of pruned ones at any step. If a scheduler
stops or pauses trials, these values are few, or mix fidelities and mislead. So samplers see an
estimate of each trial's value at the highest rung that enough trials reached
(`tuning.search.models.fidelity`).
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import optuna
from optuna.trial import FrozenTrial, TrialState

from tuning.search.evidence import Evidence
from tuning.search.models.fidelity import comparable
from tuning.search.transfer.findings import Findings


class StudyWithPriors(optuna.Study):
    """Only for proposals; to count or list trials, use the plain study of the same storage."""

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
        self._shown = {t.number: _of_generation(t, key, 0) for t in found}

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


def _of_generation(trial: FrozenTrial, key: str, generation: int) -> FrozenTrial:
    shown = copy.copy(trial)
    shown.system_attrs = {**trial.system_attrs, key: generation}
    return shown


def _complete(trial: FrozenTrial, value: float) -> FrozenTrial:
    """A copy of the trial, completed with a value."""
    shown = FrozenTrial.__new__(FrozenTrial)  # `copy.copy` takes ten times as long
    shown.__dict__.update(trial.__dict__)
    shown.state, shown.value = TrialState.COMPLETE, value
    return shown
