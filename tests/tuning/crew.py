"""A sweep whose lanes and whose machines are only remembered."""

from __future__ import annotations

from pathlib import Path

from tests.tuning.resources.test_capacity import Cluster
from tests.tuning.simulate import make_spec, open_run, train
from trainables.job import TrialJob
from trainables.launch.events import Leak
from tuning.controller.sweep import SweepController
from tuning.controller.worker_manager import WorkerManager

ELASTIC = {"workers": {"min": 1, "max": 2, "grow_after": 30.0}}


class Lanes:
    """A crew that only remembers."""

    def __init__(self, size: int) -> None:
        self.free, self.there, self.left = size, size, list[Leak]()
        self.busy: list[str] = []
        self.recalled, self.at = 0, dict[str, list[str]]()
        self.mailbox_died = False
        self.failed: str | None = None

    def start(self, job: TrialJob) -> None:
        self.free = max(0, self.free - 1)
        self.busy.append(job.key)

    def release(self, key: str, *, unusable: bool = False) -> None:
        self.busy.remove(key)
        self.free += not unusable

    def retire_idle(self, keep: int) -> None:
        self.free = min(self.free, keep)

    def workers_up(self) -> int:
        return self.there

    def cancel_starts(self) -> None:
        self.recalled += 1

    def is_alive(self) -> bool:
        return not self.mailbox_died

    def failure_reason(self, key: str, wait_s: float) -> str | None:
        return self.failed

    def machines(self) -> dict[str, list[str]]:
        return self.at

    def take_leaks(self) -> list[Leak]:
        found, self.left = self.left, []
        return found

    def close(self) -> None:
        self.retire_idle(0)


class Sweep:
    """Two trials at once fit."""

    def __init__(self, root: Path, **spec: object) -> None:
        self.run: SweepController = open_run(root, make_spec(**spec))
        self.cluster = Cluster(self.run.spec.resources, 2)
        self.lanes = Lanes(2)
        self.workers = WorkerManager(self.run, self.lanes, None, self.cluster.capacity)

    def begin(self) -> TrialJob:
        assert self.workers.find_allocation() is not None
        job = self.run.next_trial(self.workers.find_allocation)
        assert job is not None
        self.workers.start(job)
        return job

    def end(self, job: TrialJob) -> None:
        train(self.run, job)
        self.run.on_ended(job.trial_id)
        self.workers.release(job, unusable=False)
