"""Other projects' searchers and schedulers with their defaults."""

from __future__ import annotations

import warnings
from types import SimpleNamespace
from typing import Any

import optuna
from ray.tune.schedulers import ASHAScheduler
from ray.tune.search.optuna import OptunaSearch

from benchmarks.search.simulate import Attempt, Contender
from benchmarks.search.tasks import Task
from search_spaces.domains.domain import Domain
from tuning.search.optuna_domains import distribution


def _distributions(task: Task) -> dict[str, optuna.distributions.BaseDistribution]:
    return {n: distribution(Domain.model_validate(form)) for n, form in task.space.items()}


class RayOptuna(Contender):
    """Ray Tune's `OptunaSearch` and `ASHAScheduler` with their defaults."""

    def __init__(self, task: Task, seed: int) -> None:
        warnings.simplefilter("ignore")
        space = _distributions(task)
        self._search = OptunaSearch(space=space, metric="error", mode="min", seed=seed)
        self._asha = ASHAScheduler(time_attr="epoch", metric="error", mode="min", max_t=task.epochs)
        self._trials: dict[str, Any] = {}

    def next(self) -> Attempt:
        name = f"t{len(self._trials):04d}"
        config = self._search.suggest(name)
        self._trials[name] = SimpleNamespace(trial_id=name)
        self._asha.on_trial_add(None, self._trials[name])
        return Attempt(name, config)

    def report(self, trial: str, epoch: int, error: float) -> bool:
        result = {"epoch": epoch, "error": error, "training_iteration": epoch}
        self._search.on_trial_result(trial, result)
        said = self._asha.on_trial_result(None, self._trials[trial], result)
        if said == ASHAScheduler.CONTINUE:
            return True
        self._search.on_trial_complete(trial, result)
        return False


class OptunaHyperband(Contender):
    """Optuna's default sampler with its Hyperband pruner."""

    def __init__(self, task: Task, seed: int) -> None:
        warnings.simplefilter("ignore")
        self._space, self._epochs = _distributions(task), task.epochs
        self._study = optuna.create_study(
            study_name=f"seed-{seed}",  # Hyperband deals brackets by its hash
            sampler=optuna.samplers.TPESampler(seed=seed),
            pruner=optuna.pruners.HyperbandPruner(1, task.epochs, 3),
        )
        self._trials: dict[str, optuna.Trial] = {}

    def next(self) -> Attempt:
        trial = self._study.ask(self._space)
        name = f"t{trial.number:04d}"
        self._trials[name] = trial
        return Attempt(name, trial.params)

    def report(self, trial: str, epoch: int, error: float) -> bool:
        asked = self._trials[trial]
        asked.report(error, epoch)
        if epoch >= self._epochs:
            self._study.tell(asked, error)
            return False
        if asked.should_prune():
            self._study.tell(asked, state=optuna.trial.TrialState.PRUNED)
            return False
        return True
