"""What a search may still gain: a bound on its regret, from a model of its completed trials."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import optuna

MIN_TRIALS = 20


def regret_bound(study: optuna.Study, seed: int) -> float | None:
    """How far the best completed trial is from the optimum at most, with high probability.

    A Gaussian process over the better half of the completed trials gives confidence bounds of the
    objective; the regret is at most the best upper one anywhere less the best lower one among the
    trials (Makarova et al. 2022, "Automatic Termination for Hyperparameter Optimization", as
    Optuna's `RegretBoundEvaluator` has it).

    Returns:
        In the metric's unit; None below `MIN_TRIALS` completed trials, or where the trials have no
        parameter in common.
    """
    from optuna.exceptions import ExperimentalWarning
    from optuna.search_space import intersection_search_space
    from optuna.terminator import RegretBoundEvaluator
    from optuna.trial import TrialState

    trials = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    if len(trials) < MIN_TRIALS or not intersection_search_space(trials):
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        evaluator = RegretBoundEvaluator(min_n_trials=MIN_TRIALS, seed=seed)
        return float(evaluator.evaluate(trials, study.direction))
