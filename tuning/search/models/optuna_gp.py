"""Optuna's Gaussian process: a searcher with one thread, and a bound of what is left to gain."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from optuna.samplers import GPSampler
from threadpoolctl import threadpool_limits

if TYPE_CHECKING:
    import optuna


class OneThreadGPSampler(GPSampler):
    """A proposal takes half the processor time, and does not wait for busy processors; see
    `tuning.search.models.gp`.
    """

    def sample_relative(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """As in `GPSampler`."""
        import torch  # noqa: F401  # its threads are limited if it is there

        with threadpool_limits(1):
            return super().sample_relative(*args, **kwargs)


MIN_TRIALS = 20


def regret_bound(study: optuna.Study, seed: int) -> float | None:
    """Upper bound, with high probability, of the best completed trial's distance to the optimum.

    A Gaussian process over the better half of the completed trials gives confidence bounds of the
    objective. The regret is at most the best upper bound anywhere minus the best lower bound of the
    trials (Makarova et al. 2022, "Automatic Termination for Hyperparameter Optimization",
    implemented by Optuna's `RegretBoundEvaluator`).

    Returns:
        The bound in the metric's unit; None with fewer than `MIN_TRIALS` completed trials, or if
        the trials have no parameter in common.
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
