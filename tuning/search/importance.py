"""Importance of each hyperparameter, by Optuna; for the report, which cannot import Optuna."""

from __future__ import annotations

import math
import random
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import optuna
from optuna.distributions import FloatDistribution, IntDistribution
from optuna.exceptions import ExperimentalWarning
from optuna.importance import (
    BaseImportanceEvaluator,
    FanovaImportanceEvaluator,
    PedAnovaImportanceEvaluator,
    get_param_importances,
)
from optuna.trial import create_trial

from results.report.sweep_data import Importance, SweepData, common_step, value_at
from tuning.search.optuna_space import OptunaSpace

_MAX_TRIALS = 256
"""Trials that are used at most: fANOVA's time grows with the square of their number."""
_MIN_TRIALS = 8


def with_importances(data: SweepData) -> SweepData:
    """The data with the importances for each of its objectives."""
    others = [replace(one, importances=importances(one)) for one in data.others]
    return replace(data, importances=importances(data), others=others)


def importances(data: SweepData) -> list[Importance]:
    """Importance by two methods, from the trials that reached a common step.

    fANOVA (Hutter et al. 2014, "An Efficient Approach for Assessing Hyperparameter Importance")
    explains the variance over the whole space; PED-ANOVA (Watanabe et al. 2023) explains what
    distinguishes the best tenth from the rest. Empty with fewer than eight trials, if they have
    fewer than two parameters in common, or values without a variance.
    """
    ranked = [e.record for e in data.ranked]
    step = common_step([data.curves[r.id] for r in ranked], _MIN_TRIALS)
    found = [(r.params, v) for r in ranked if (v := value_at(data.curves[r.id], step)) is not None]
    if len(found) < _MIN_TRIALS or not data.has_variance:
        return []
    study = _study(data, found)
    methods: dict[str, BaseImportanceEvaluator] = {
        "fANOVA": FanovaImportanceEvaluator(n_trees=32, max_depth=32, seed=data.spec.seed)
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        methods["PED-ANOVA"] = PedAnovaImportanceEvaluator()
        each = {n: get_param_importances(study, evaluator=m) for n, m in methods.items()}
    shares = {n: {name: float(share) for name, share in s.items()} for n, s in each.items()}
    return [Importance(n, s, step, len(found)) for n, s in shares.items() if len(s) > 1]


def _study(data: SweepData, found: Sequence[tuple[Mapping[str, Any], float]]) -> optuna.Study:
    if len(found) > _MAX_TRIALS:
        found = random.Random(data.spec.seed).sample(found, _MAX_TRIALS)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="minimize" if data.spec.mode == "min" else "maximize")
    space = OptunaSpace(data.spec)
    for params, value in found:
        known, distributions = space.encoded(params)
        for name, one in distributions.items():
            # Optuna's fANOVA has the small values as rare ones
            if isinstance(one, FloatDistribution | IntDistribution) and one.log:
                low, high, known[name] = map(math.log, (one.low, one.high, known[name]))
                distributions[name] = FloatDistribution(low, high)
        study.add_trial(create_trial(params=known, distributions=distributions, value=value))
    return study
