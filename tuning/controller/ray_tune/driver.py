"""Lets Ray Tune run a sweep: thin adapters around `SweepController`.

To Ray Tune a trial is one attempt. Retries and resumed trials are new Ray Tune trials, because the
sweep keeps configurations, rungs and budgets, and Ray Tune does not.
"""

from __future__ import annotations

import gc
import logging
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from typing import Any, TypeVar, cast

from ray import tune
from ray.tune.schedulers import FIFOScheduler
from ray.tune.search import Searcher

from results.paths import SweepPaths
from results.records.failures import MORE_MEMORY, Remedy
from results.storage.fault_injection import fault_point
from trainables.job import Answer, TrialJob
from trainables.launch.broker.events import Ended, Event, Failed, Reported
from tuning.controller.ray_tune.listener import (
    EVENT,
    KEY,
    AttemptTrainable,
    Connection,
    ListeningManager,
)
from tuning.controller.ray_tune.patches import NoProgress, count_no_callbacks, evict_finished
from tuning.controller.sweep import SweepController
from tuning.controller.worker_manager import WorkerManager
from tuning.search.schedulers import Decision

_UNUSABLE_AFTER = (Remedy.RETRY_ELSEWHERE, *MORE_MEMORY)
"""After these the processes of an attempt run no other one."""


Callback = TypeVar("Callback", bound=Callable[..., Any])


def guarded(end: Any) -> Callable[[Callback], Callback]:
    """Decorate a callback of an object with a `run`, the sweep that it changes.

    An exception ends the session, which raises it (`SweepController.fail`): Ray Tune swallows some,
    or makes text of them.

    Args:
        end: returned then, and by every later call: the answer that ends Ray Tune's loop soonest.
    """

    def decorate(callback: Callback) -> Callback:
        @wraps(callback)
        def call(adapter: Any, /, *args: Any, **kwargs: Any) -> Any:
            run: SweepController = adapter.run
            run.on_progress()
            if run.error is None:
                try:
                    return callback(adapter, *args, **kwargs)
                except Exception as e:  # noqa: BLE001 - raised again by `run_trials`
                    run.fail(e)
            return end

        return cast("Callback", call)

    return decorate


class RayTuneSearcher(Searcher):
    """Gives Ray Tune the next attempts, and reports their ends to the sweep.

    Attributes:
        run: the sweep.
        jobs: the attempts that run, by Ray Tune's trial id.
    """

    def __init__(self, run: SweepController, workers: WorkerManager) -> None:
        super().__init__()
        self.run, self._workers = run, workers
        self.jobs: dict[str, TrialJob] = {}

    @guarded(Searcher.FINISHED)
    def suggest(self, trial_id: str) -> Any:
        """The next attempt; None if no workers are free, FINISHED if nothing is left to run."""
        if self.run.finished or self._workers.broker_lost:
            return Searcher.FINISHED
        find = self._workers.find_allocation
        job = None if find() is None else self.run.next_trial(find)
        if job is None:
            return None
        self.jobs[trial_id] = job
        self._workers.start(job)
        fault_point("driver:started")
        return {KEY: job.key}

    @guarded(None)
    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """An attempt ended: by itself, by its own failure, or because the broker died."""
        job = self.jobs.pop(trial_id, None)
        if job is None:
            return
        event: Event | None = (result or {}).get(EVENT)
        if event is not None:
            self.run.lifecycle.record_wait(job.key, event.waited)
        remedy = self._workers.on_broker_failed(job) if error else self._on_event(job, event)
        self._workers.release(job, unusable=remedy in _UNUSABLE_AFTER)
        fault_point("driver:released")

    def _on_event(self, job: TrialJob, last: Event | None) -> Remedy | None:
        """Hand an attempt's last event to the sweep; returns the remedy of a failure."""
        if not isinstance(last, Failed):
            self.run.on_ended(job.trial_id, last.pruned if isinstance(last, Ended) else "")
        elif last.came_up:
            return self.run.on_failed(
                job.trial_id, last.reason, began=last.began, machines=last.machines
            )
        else:
            self._workers.on_start_failed(job, last.reason)
        return None

    def save_to_dir(self, checkpoint_dir: str, session_str: str = "default") -> None:
        """Save nothing: a resume reads the sweep folder."""

    def __getstate__(self) -> dict[str, Any]:
        return {}  # Ray Tune pickles its searcher for a restore that is never done


class RayTuneScheduler(FIFOScheduler):
    """Asks the sweep after each report, and collects the answers to the trials.

    Attributes:
        run: the sweep.
        answers: to reports, by key of the attempt; sent together after a batch of events.
    """

    def __init__(
        self, run: SweepController, searcher: RayTuneSearcher, workers: WorkerManager
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.run, self._searcher, self._workers = run, searcher, workers
        self.answers: dict[str, Answer] = {}
        self._patched = False

    @guarded(FIFOScheduler.STOP)
    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        """CONTINUE or STOP; a trial learns that it is stopped when its workers are released."""
        job, event = self._searcher.jobs.get(trial.trial_id), result[EVENT]
        if job is None or not isinstance(event, Reported):
            return self.CONTINUE
        fault_point("driver:heard")
        self.run.lifecycle.record_wait(job.key, event.waited)
        self._workers.sharing.on_report(job, event.report)
        decision = self.run.on_report(job.trial_id, event.report)
        fault_point("driver:decided")
        if decision is not Decision.CONTINUE:
            return self.STOP
        self.answers[job.key] = self._workers.answer(job)
        return self.CONTINUE

    @contextmanager
    def _batch(self) -> Iterator[None]:
        """Write the study once for all trials that end in the block. Their records are written
        before; a driver that is killed in between tells the study when the sweep is resumed.
        """
        try:
            with self.run.study.batched():
                yield
        except Exception as e:  # noqa: BLE001 - raised again by `run_trials`
            self.run.fail(e)

    @guarded(None)
    def _answered(self) -> None:
        fault_point("driver:answered")

    @guarded(None)
    def on_trial_add(self, tune_controller: Any, trial: Any) -> None:
        """Let Ray Tune start no actors, and remove finished trials."""
        super().on_trial_add(tune_controller, trial)
        if not self._patched:
            self._patched = True
            connection = Connection(self._workers.broker)
            manager = ListeningManager(connection, self.answers, self._batch, self._answered)
            tune_controller._tune_controller._actor_manager = manager
        evict_finished(tune_controller)

    def __getstate__(self) -> dict[str, Any]:
        return {}


class _Stopper(tune.Stopper):
    """Ends Ray Tune's loop when the sweep is interrupted; called after each step of the loop."""

    def __init__(
        self, run: SweepController, workers: WorkerManager, between: Callable[[], None]
    ) -> None:
        self.run, self._workers, self._between = run, workers, between

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return False

    @guarded(True)
    def stop_all(self) -> bool:
        self._workers.poll()
        self._between()
        return self.run.interrupted or bool(self._workers.broker_lost)

    def __getstate__(self) -> dict[str, Any]:
        return {}


def run_trials(run: SweepController, workers: WorkerManager, between: Callable[[], None]) -> None:
    """Run a sweep's trials until its budget is spent or it is interrupted. Ray must be running.

    Args:
        run: the sweep.
        workers: run its attempts.
        between: called often, between the trials' events.

    Raises:
        Exception: the first one of a callback.
    """
    searcher = RayTuneSearcher(run, workers)
    gc.freeze()  # imported objects stay: collecting them stops the loop for a third of a second
    try:
        _fit(run, searcher, workers, _Stopper(run, workers, between))
    finally:
        gc.unfreeze()
        _leave_deleted(run.paths)
        if run.error is not None:
            raise run.error
    if workers.broker_lost:
        for job in searcher.jobs.values():
            workers.on_broker_failed(job)


def _leave_deleted(paths: SweepPaths) -> None:
    """Remove what Ray Tune has written into the folder of a sweep after somebody deleted it."""
    if not paths.spec.exists() and not paths.lock.exists():
        shutil.rmtree(paths.ray, ignore_errors=True)
        with suppress(OSError):  # it has something else
            paths.root.rmdir()


def _fit(
    run: SweepController, searcher: RayTuneSearcher, workers: WorkerManager, stopper: _Stopper
) -> None:
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)  # else tracebacks of a lost broker
    count_no_callbacks()
    tune.Tuner(
        AttemptTrainable,
        tune_config=tune.TuneConfig(
            search_alg=searcher,
            scheduler=RayTuneScheduler(run, searcher, workers),
            num_samples=-1,
            trial_dirname_creator=lambda trial: str(trial.trial_id),
        ),
        run_config=tune.RunConfig(
            name="tune",
            storage_path=str(run.paths.ray),
            callbacks=[NoProgress()],
            stop=stopper,
            checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
            verbose=0,
        ),
    ).fit()
