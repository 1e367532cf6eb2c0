"""CMA-ES that begins where other sweeps found good values."""

from __future__ import annotations

import copy
from typing import Any

from optuna import Study
from optuna.distributions import BaseDistribution
from optuna.samplers import CmaEsSampler
from optuna.trial import FrozenTrial, TrialState

REBUILT = "made_again"
"""Marks trials of which only the outcome is known: their study was lost, or of another space."""
_MIN_TRIALS = 10
"""The method begins with the best tenth of what is known."""


class WarmCmaEsSampler(CmaEsSampler):
    """Takes its first mean and covariance from trials that it did not propose (Nomura et al. 2021,
    "Warm Starting CMA-ES for Hyperparameter Optimization"), if there are ten: those of other
    sweeps, whose numbers are negative, and of a study that was made again.
    """

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """As CMA-ES proposes it."""
        complete = study._get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        found = [t for t in complete if t.number < 0 or REBUILT in t.system_attrs]
        enough = len(found) >= _MIN_TRIALS
        self._source_trials = [_only(t, search_space) for t in found] if enough else None
        return super().sample_relative(study, trial, search_space)


def _only(trial: FrozenTrial, space: dict[str, BaseDistribution]) -> FrozenTrial:
    """The trial with the parameters of a space alone."""
    shown = copy.copy(trial)
    shown.distributions = {name: trial.distributions[name] for name in space}
    shown.params = {name: trial.params[name] for name in space}
    return shown
