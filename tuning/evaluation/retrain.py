"""Trains a trial again: in this process where that is possible, a Ray Train loop under Ray.

`tuning.evaluation.confirm` asks for fresh seeds.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from results.checkpoints.commit import newest_intact
from results.paths import SweepPaths, TrialPaths
from results.records.trial import TrialRecord, read_reports
from search_spaces.errors import UserError
from search_spaces.spec.sweep import SweepSpec
from trainables.base import Trainable
from trainables.job import TrialJob
from trainables.launch.local import run_local
from trainables.launch.rerun import StopAfter
from trainables.launch.run_trial import output_to
from trainables.registry import is_foreign, resolve
from tuning.controller.trial_jobs import make_rerun_job
from tuning.evaluation.load_model import cache_of, config_of
from tuning.evaluation.test_split import test_scorer

PrintLine = Callable[[str], None]
"""Tells a person a line."""


class Retrainer(Protocol):
    """How trials of a sweep are trained and judged once more.

    Attributes:
        judged: whether there is a test split on which models can be judged.
    """

    judged: bool

    def train(self, record: TrialRecord, files: TrialPaths, until: int, seed: int) -> None:
        """Train a trial from its start to a step, under another seed, in files of its own."""
        ...

    def scores(self, record: TrialRecord, files: TrialPaths) -> dict[str, float]:
        """What the newest weights get on the test split, by metric; nothing where there is none."""
        ...


def make_retrainer(paths: SweepPaths, spec: SweepSpec, address: str | None) -> Retrainer:
    """The way that the sweep's trainable allows."""
    if is_foreign(spec.trainable):
        return UserLoopRetrainer(paths, spec, address)
    return TrainableRetrainer(paths, spec, resolve(spec.trainable))


class TrainableRetrainer:
    """In this process, without Ray.

    It holds what the sweep's workers held together: with the trainables of this project, whose
    batches are of all workers together, each step sees the same samples, and sums differ in their
    last bits. Code of one's own that counts by worker sees another batch.
    """

    judged = True

    def __init__(self, paths: SweepPaths, spec: SweepSpec, trainable: Trainable[Any]) -> None:
        self._spec, self._trainable, self._cache = spec, trainable, cache_of(paths)

    def train(self, record: TrialRecord, files: TrialPaths, until: int, seed: int) -> None:
        """See `Retrainer`. What was trained before is not trained again."""
        config_of(self._spec, self._trainable, record)
        done = read_reports(files)
        if done and done[-1].step >= until and newest_intact(files):
            return
        config = reseeded(self._trainable, {**record.config, **record.adjusted}, seed)
        job = make_rerun_job(
            self._spec, record, files, str(self._cache), until, seed=seed, config=config
        )
        with output_to(files.log(1, 0)):
            run_local(job, StopAfter(until))

    def scores(self, record: TrialRecord, files: TrialPaths) -> dict[str, float]:
        """See `Retrainer`."""
        config = config_of(self._spec, self._trainable, record)
        return test_scorer(self._trainable, config, self._cache)(_weights(files))


class UserLoopRetrainer:
    """Somebody's Ray Train loop: under Ray, with the workers of a trial. It takes a seed as
    `config["seed"]`, and is judged by what it reports.
    """

    judged = False

    def __init__(self, paths: SweepPaths, spec: SweepSpec, address: str | None) -> None:
        self._spec, self._cache, self._address = spec, cache_of(paths), address

    def train(self, record: TrialRecord, files: TrialPaths, until: int, seed: int) -> None:
        """See `Retrainer`. What was trained before is not trained again.

        Raises:
            UserError: the loop takes no seed, or failed.
        """
        done = read_reports(files)
        if done and done[-1].step >= until:
            return
        if "seed" not in record.config:
            raise UserError(
                f"trainable {self._spec.trainable}: takes no seed, so it cannot be trained again "
                "under fresh ones; let the loop seed itself with config['seed'], and give it "
                "fixed: {seed: 0} in a new sweep"
            )
        config = {**record.config, **record.adjusted, "seed": seed}
        job = make_rerun_job(
            self._spec, record, files, str(self._cache), until, seed=seed, config=config
        )
        run_user_loop(self._spec, job, until, record.attempts[-1].workers, self._address)

    def scores(self, record: TrialRecord, files: TrialPaths) -> dict[str, float]:
        """Nothing: only the loop can read its checkpoints."""
        return {}


def run_user_loop(
    spec: SweepSpec, job: TrialJob, until: int, workers: int, address: str | None
) -> None:
    """Run an attempt of a Ray Train loop under Ray, on so many workers, to its end or to a step.

    Raises:
        UserError: it failed, or no cluster can take it.
    """
    from tuning.controller.resources.cluster import ray_cluster
    from tuning.controller.resources.placement import compute_placement

    with ray_cluster(address) as nodes:
        placement = compute_placement(spec.resources, nodes)
        import ray

        from trainables.launch.broker import start_broker
        from trainables.launch.events import Failed, Reported
        from trainables.launch.fresh_pool import FreshWorkerPool
        from trainables.launch.ray_train import Shape

        timeout = spec.failure.start_timeout
        held = workers, spec.resources.cpus_per_worker, placement.gpus_per_worker
        broker: Any = start_broker()
        crew = FreshWorkerPool(Shape(*held, timeout, str(job.paths.root / "ray")), broker)
        crew.start(job)
        try:
            while isinstance(event := ray.get(broker.event.remote(job.key)), Reported):
                if event.report.step >= until:
                    return
        finally:
            crew.close()
            ray.kill(broker)
        if isinstance(event, Failed):
            log = job.paths.log(job.attempt, 0)
            raise UserError(f"{job.trial_id} could not be run again: {event.reason}; log {log}")


def reseeded(trainable: Trainable[Any], config: dict[str, Any], seed: int) -> dict[str, Any]:
    """A configuration whose initial weights are fresh too, where the trainable has them seeded."""
    return {**config, "init_seed": seed} if "init_seed" in trainable.Config.model_fields else config


def _weights(files: TrialPaths) -> Path:
    found = newest_intact(files)
    if found is None:
        raise UserError(
            f"{files.root}: no whole checkpoint to evaluate; confirm with fresh seeds instead"
        )
    return found.folder
