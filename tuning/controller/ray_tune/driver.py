"""Lets Ray Tune run a sweep: thin shells around `SweepController`.

To Ray Tune a trial is one attempt of ours: retries and resumed trials come back as new Tune trials
of the same trial id, because we keep the books (configuration, rungs, budgets) and Tune does not.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable
from typing import Any

from ray import tune
from ray.tune.progress_reporter import TrialProgressCallback
from ray.tune.schedulers import FIFOScheduler
from ray.tune.search import Searcher

from results.records.failures import Remedy
from results.records.trial import Report
from results.storage.fault_injection import fault_point
from trainables.job import TrialJob
from tuning.controller.ray_tune.actor_reuse import keep_actors
from tuning.controller.ray_tune.evict_finished import forget_finished
from tuning.controller.ray_tune.trial_actor import (
    BEGAN,
    CAME_UP,
    ERROR,
    KEY,
    REPORT,
    TrialActor,
    machines,
)
from tuning.controller.resources.cluster import own_node_resource
from tuning.controller.sweep import SweepController
from tuning.controller.worker_manager import WorkerManager
from tuning.search.schedulers import Decision

_SPOILS = (Remedy.RETRY_ELSEWHERE, Remedy.SHRINK)
"""After these the processes of an attempt take no other."""
_SLIVER = 1e-4
"""The least that Ray counts of a resource; Tune demands some for each of its actors."""


class RayTuneSearcher(Searcher):
    """Hands Ray Tune the attempts that are next, and the books what became of them."""

    def __init__(self, run: SweepController, workers: WorkerManager) -> None:
        super().__init__()
        self._run, self._hired = run, workers
        self.jobs: dict[str, TrialJob] = {}
        self.killed: set[str] = set()  # whose listeners Ray's memory monitor killed

    def suggest(self, trial_id: str) -> Any:
        """The next attempt; None when all slots are taken, FINISHED when nothing is left."""
        if self._run.finished or self._hired.broker_lost:
            return Searcher.FINISHED
        allocation = self._hired.allocation
        job = None if allocation() is None else self._run.next_trial(allocation)
        if job is None:
            return None
        self.jobs[trial_id] = job
        self._hired.start(job)
        fault_point("driver:started")
        return {KEY: job.key}

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """An attempt ended: by itself, by its own failure, or because its actor died."""
        job = self.jobs.pop(trial_id, None)
        if job is None:
            return
        remedy = None
        if error:
            remedy = self._hired.on_listener_died(job, for_memory=trial_id in self.killed)
        elif result and ERROR in result and not result[CAME_UP]:
            self._hired.on_start_failed(job, result[ERROR])
        elif result and ERROR in result:
            remedy = self._run.on_failed(
                job.trial_id, result[ERROR], began=result[BEGAN], machines=machines(result)
            )
        else:
            self._run.on_ended(job.trial_id)
        self._hired.release(job, unusable=remedy in _SPOILS)
        fault_point("driver:released")

    def save_to_dir(self, checkpoint_dir: str, session_str: str = "default") -> None:
        """Nothing: the sweep folder is the truth."""

    def __getstate__(self) -> dict[str, Any]:
        return {}  # Tune pickles its searcher for a restore that we never do


class RayTuneScheduler(FIFOScheduler):
    """Asks the books after each report, and answers the trial."""

    def __init__(
        self, run: SweepController, searcher: RayTuneSearcher, workers: WorkerManager
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._run, self._searcher, self._hired = run, searcher, workers
        self._mailbox = workers.broker
        self._kept = False

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        """CONTINUE or STOP; what is stopped is told so when its lane is released."""
        job = self._searcher.jobs.get(trial.trial_id)
        if job is None or REPORT not in result:
            return self.CONTINUE
        fault_point("driver:heard")
        decision = self._run.on_report(job.trial_id, Report.model_validate_json(result[REPORT]))
        fault_point("driver:decided")
        if decision is not Decision.CONTINUE:
            return self.STOP
        self._mailbox.answer.remote(job.key, self._hired.answer(job))
        fault_point("driver:answered")
        return self.CONTINUE

    def on_trial_add(self, tune_controller: Any, trial: Any) -> None:
        """Let Tune keep its actors between trials, and nothing of trials that are over."""
        super().on_trial_add(tune_controller, trial)
        if not self._kept:
            self._kept = True
            controller, resources = tune_controller._tune_controller, trial.placement_group_factory
            keep_actors(controller, resources, self._searcher.killed)
        forget_finished(tune_controller)

    def __getstate__(self) -> dict[str, Any]:
        return {}


class _Silent(TrialProgressCallback):
    """Takes the place of Ray Tune's own, which keeps every trial that ended, whatever it prints."""

    def on_trial_result(self, *args: Any, **info: Any) -> None:
        """Nothing."""

    def on_trial_error(self, *args: Any, **info: Any) -> None:
        """Nothing."""

    def on_trial_complete(self, *args: Any, **info: Any) -> None:
        """Nothing."""


class _Stopper(tune.Stopper):
    """Ends Tune's loop when the sweep was interrupted; is asked after each of its steps."""

    def __init__(
        self,
        run: SweepController,
        workers: WorkerManager,
        between: Callable[[], None],
    ) -> None:
        self._run, self._hired, self._between = run, workers, between

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return False

    def stop_all(self) -> bool:
        self._hired.poll()
        self._between()
        return self._run.interrupted or self._hired.broker_lost

    def __getstate__(self) -> dict[str, Any]:
        return {}


def drive(run: SweepController, workers: WorkerManager, between: Callable[[], None]) -> None:
    """Run a sweep's trials until its budget is spent or it is interrupted. Ray must be up.

    `between` is called again and again, between the trials' events.
    """
    searcher = RayTuneSearcher(run, workers)
    gc.freeze()  # what is imported stays: its collection stops the loop for a third of a second
    _tune(run, searcher, workers, _Stopper(run, workers, between))
    if workers.broker_lost:
        for job in searcher.jobs.values():
            workers.on_listener_died(job)


def _tune(
    run: SweepController, searcher: RayTuneSearcher, workers: WorkerManager, stopper: _Stopper
) -> None:
    logging.getLogger("ray.tune").setLevel(logging.ERROR)
    actor = tune.with_parameters(TrialActor, broker=workers.broker)
    tune.Tuner(
        # No CPU: the workers need them all. On this machine: it is not lost while the driver lives.
        tune.with_resources(actor, {"cpu": 0, own_node_resource(): _SLIVER}),
        tune_config=tune.TuneConfig(
            search_alg=searcher,
            scheduler=RayTuneScheduler(run, searcher, workers),
            num_samples=-1,
            reuse_actors=True,
            trial_dirname_creator=lambda trial: str(trial.trial_id),
        ),
        run_config=tune.RunConfig(
            name="tune",
            storage_path=str(run.paths.ray),
            callbacks=[_Silent()],
            stop=stopper,
            checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
            verbose=0,
        ),
    ).fit()
