"""Trains a trial again, from its start, under another seed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from results.checkpoints.commit import newest_intact
from results.paths import SweepPaths
from results.records.trial import TrialRecord, read_reports
from results.trial_paths import TrialPaths
from search_spaces.errors import UserError
from search_spaces.spec.sweep import SweepSpec
from trainables.job import TrialJob
from trainables.launch.rerun import StopAfter
from trainables.launch.run_trial import output_to, run_local
from trainables.registry import resolve_for
from tuning.controller.trial_jobs import make_rerun_job
from tuning.evaluation.load_model import config_of
from tuning.evaluation.scoring import make_test_scorer

PrintLine = Callable[[str], None]
"""Prints a line for the user."""


class Retrainer:
    """Trains and evaluates trials of a sweep once more.

    In this process, without Ray: one process computes what the sweep's workers computed together.
    With the trainables of this project, whose batches are of all workers together, each step sees
    the same samples, and sums differ in their last bits; code that counts by worker sees another
    batch. Code that uses Ray Train runs under Ray instead, with the workers of a trial.

    Attributes:
        can_evaluate: whether models can be evaluated on the test split.
    """

    def __init__(self, paths: SweepPaths, spec: SweepSpec, address: str | None) -> None:
        self._spec, self._cache, self._address = spec, paths.storage.cache, address
        self._trainable = resolve_for(spec)
        self.can_evaluate = self._trainable.can_evaluate

    def train(self, record: TrialRecord, files: TrialPaths, until: int, seed: int) -> None:
        """Train a trial from its start to a step, under another seed, in files of its own.

        Does nothing if the files hold such a run already.

        Raises:
            UserError: the trial's configuration is not valid any more, the training code takes no
                seed, or it failed.
        """
        config_of(self._spec, self._trainable, record)
        done = read_reports(files)
        whole = bool(done) and done[-1].step >= until
        if whole and (not self.can_evaluate or newest_intact(files, self._trainable.models)):
            return
        config = self._trainable.with_seed({**record.config, **record.adjusted}, seed)
        job = make_rerun_job(
            self._spec, record, files, str(self._cache), until, seed=seed, config=config
        )
        if self._trainable.uses_ray_train:
            run_user_loop(self._spec, job, until, record.attempts[-1].workers, self._address)
            return
        with output_to(files.log(1, 0)):
            run_local(job, StopAfter(until))

    def scores(self, record: TrialRecord, files: TrialPaths) -> dict[str, float]:
        """Metrics of the newest weights on the test split; empty if they cannot be evaluated."""
        if not self.can_evaluate:
            return {}
        config = config_of(self._spec, self._trainable, record)
        found = newest_intact(files, self._trainable.models)
        if found is None:
            raise UserError(
                f"{files.root}: no intact checkpoint to evaluate; confirm with fresh seeds instead"
            )
        return make_test_scorer(self._trainable, config, self._cache)(found.folder)


def run_user_loop(
    spec: SweepSpec, job: TrialJob, until: int, workers: int, address: str | None
) -> None:
    """Run an attempt of a Ray Train loop under Ray, to its end or to the report of a step.

    Args:
        until: step of the report after which it is stopped.
        address: of the Ray cluster; None starts one on this machine.

    Raises:
        UserError: it failed, or it does not fit the cluster.
    """
    from tuning.cluster.connection import ray_cluster
    from tuning.controller.resources.placement import compute_placement

    with ray_cluster(address) as nodes:
        placement = compute_placement(spec.resources, nodes)
        import ray

        from trainables.launch.broker.actor import start_broker
        from trainables.launch.broker.events import Failed, Reported
        from trainables.launch.ray_train import WorkerGroupSpec
        from trainables.launch.ray_train_loops.pool import FreshWorkerPool

        broker: Any = start_broker()
        folder = str(job.paths.root / "ray")
        group = WorkerGroupSpec.of(spec, workers, placement.gpus_per_worker, folder)
        pool = FreshWorkerPool(group, broker)
        pool.start(job)
        try:
            while isinstance(event := ray.get(broker.next_event.remote(job.key)), Reported):
                if event.report.step >= until:
                    return
        finally:
            pool.close()
            ray.kill(broker)
        if isinstance(event, Failed):
            log = job.paths.log(job.attempt, 0)
            raise UserError(f"{job.trial_id} could not be run again: {event.reason}; log {log}")
