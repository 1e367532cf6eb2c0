"""CMA-ES that starts from trials of other sweeps."""

from __future__ import annotations

import copy
from typing import Any

from optuna import Study
from optuna.distributions import BaseDistribution
from optuna.samplers import CmaEsSampler
from optuna.trial import FrozenTrial, TrialState

REBUILT = "made_again"
"""Marks trials that were added with their outcome: the study was lost, or the space has changed."""
_MIN_TRIALS = 10
"""The method starts from the best tenth of the known trials."""


class WarmCmaEsSampler(CmaEsSampler):
    """Takes its first mean and covariance from trials that it did not propose (Nomura et al. 2021,
    "Warm Starting CMA-ES for Hyperparameter Optimization"), if there are at least ten: trials of
    other sweeps, which have negative numbers, and trials of a rebuilt study.
    """

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Propose a configuration by CMA-ES."""
        complete = study._get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        found = [t for t in complete if t.number < 0 or REBUILT in t.system_attrs]
        enough = len(found) >= _MIN_TRIALS
        self._source_trials = [_only(t, search_space) for t in found] if enough else None
        return super().sample_relative(study, trial, search_space)


def _only(trial: FrozenTrial, space: dict[str, BaseDistribution]) -> FrozenTrial:
    """A copy of the trial with only the parameters of a space."""
    shown = copy.copy(trial)
    shown.distributions = {name: trial.distributions[name] for name in space}
    shown.params = {name: trial.params[name] for name in space}
    return shown
