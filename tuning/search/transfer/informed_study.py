"""A sweep's study as its sampler sees it: findings of other sweeps, and trials that were not run to
their end, made comparable.

Optuna's samplers look at values of complete trials, and at whatever step others were pruned. Under
a scheduler that stops or pauses that is next to nothing, or a mixture of fidelities that misleads
them; so they are shown what each trial's newest value would be at the highest rung that enough
trials reached (`tuning.search.models.fidelity`).
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


class InformedStudy(optuna.Study):
    """It is asked for proposals only; whoever counts trials uses the plain study of its storage."""

    findings: Findings | None = None
    _shown: dict[int, FrozenTrial] | None = None

    def show_comparable(self, trials: Sequence[FrozenTrial], evidence: Evidence) -> None:
        """Show these trials, whose curves the evidence has in the same order, by their comparable
        values from now on; where nothing is stopped, as they are.
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
        """Let a genetic algorithm, which breeds from its own generations alone, take for its first
        what it did not propose: complete trials of other sweeps, an earlier space or searcher.

        Args:
            trials: any.
            key: by which the algorithm notes a trial's generation.
        """
        found = [t for t in trials if t.state is TrialState.COMPLETE and key not in t.system_attrs]
        self._shown = {t.number: _of_generation(t, key, 0) for t in found}

    def _get_trials(
        self,
        deepcopy: bool = True,
        states: Any = None,
        use_cache: bool = False,
    ) -> list[FrozenTrial]:
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
    """The same trial, as if it had ended with a value."""
    shown = copy.copy(trial)
    shown.state, shown.value = TrialState.COMPLETE, value
    return shown
