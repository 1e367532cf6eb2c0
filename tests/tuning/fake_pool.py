"""A sweep with a worker pool and a cluster that only record what they are told."""

from __future__ import annotations

from pathlib import Path

from tests.tuning.resources.test_capacity import Cluster
from tests.tuning.simulate import make_spec, next_job, open_run, train
from trainables.job import TrialJob
from trainables.launch.broker.events import Leak
from tuning.controller.resources.placement import Node
from tuning.controller.sweep import SweepController
from tuning.controller.worker_manager import WorkerManager

ELASTIC = {"workers": {"min": 1, "max": 2, "grow_after": 30.0}}


class FakePool:
    """A worker pool without processes."""

    def __init__(self, size: int) -> None:
        self.free, self.up, self.unread_leaks = size, size, list[Leak]()
        self.busy: list[str] = []
        self.cancelled, self.machine_ids = 0, dict[str, list[str]]()
        self.broker_died, self.gpus = False, 1.0

    def start(self, job: TrialJob) -> None:
        self.free = max(0, self.free - 1)
        self.busy.append(job.key)

    def release(self, key: str, *, unusable: bool = False) -> None:
        self.busy.remove(key)
        self.free += not unusable

    def retire_idle(self, keep: int) -> None:
        self.free = min(self.free, keep)

    def use_gpus(self, gpus_per_worker: float) -> None:
        self.gpus, self.free = gpus_per_worker, 0

    def poll(self) -> None: ...

    def workers_up(self) -> int:
        return self.up

    def cancel_starts(self) -> None:
        self.cancelled += 1

    def broker_error(self) -> str:
        return "killed" if self.broker_died else ""

    def machines(self) -> dict[str, list[str]]:
        return self.machine_ids

    def take_leaks(self) -> list[Leak]:
        found, self.unread_leaks = self.unread_leaks, []
        return found

    def close(self) -> None:
        self.retire_idle(0)


class Sweep:
    """A sweep on a cluster of a machine, by default with room for two trials at once."""

    def __init__(self, root: Path, *, gpus: float = 0, cpus: float = 2, **spec: object) -> None:
        self.run: SweepController = open_run(root, make_spec(**spec))
        self.cluster = Cluster(self.run.spec.resources, Node(cpus, gpus))
        self.pool = FakePool(2)
        self.workers = WorkerManager(self.run, self.pool, None, self.cluster.capacity)

    def begin(self) -> TrialJob:
        assert self.workers.find_allocation() is not None
        job = next_job(self.run, self.workers.find_allocation)
        self.workers.start(job)
        return job

    def end(self, job: TrialJob) -> None:
        train(self.run, job)
        self.run.on_ended(job.trial_id)
        self.workers.release(job, unusable=False)
