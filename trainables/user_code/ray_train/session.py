"""What Ray Train's functions do while a loop is a trial.

All functions of `ray.train` and its integrations ask one object of the process, a `TrainFnUtils`,
which Ray Train lets others replace. So they stay Ray's own, on a lane and without Ray.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ray
import torch
import torch.distributed as dist
from ray.train import Checkpoint
from ray.train.v2._internal.execution import train_fn_utils
from ray.train.v2._internal.execution.storage import StorageContext
from ray.train.v2._internal.execution.train_fn_utils import TrainFnUtils
from ray.train.v2.api.context import LocalTrainContext
from ray.train.v2.api.preemption import PreemptionInfo
from ray.train.v2.api.reported_checkpoint import ReportedCheckpoint, ReportedCheckpointStatus

from results.records.reports import read_reports
from search_spaces.errors import UserError
from trainables.checkpointing.saver import Superseded
from trainables.job import Answer
from trainables.runtime.preemption import preemption_requested
from trainables.user_code import loader
from trainables.user_code.metrics import StepCounter, flat_numbers, warn_not_restored
from trainables.user_code.private_folders import attempt_lock, private_folders
from trainables.user_code.ray_code import NO_DATASETS
from trainables.user_code.ray_train.checkpoints import adopt_kept
from trainables.user_code.ray_train.last_report import LastReport
from trainables.user_code.user_trainer import call_of, refuse_fit
from trainables.worker import Worker

_UNEVEN = "another rank ended or failed before this report; all call ray.train.report equally often"


class LoopEnded(SystemExit):
    """Ends a loop at the report at which its trial ends; not an `Exception` that code catches."""


class LoopContext(LocalTrainContext):
    """What `ray.train.get_context()` returns: the ranks, and the folder, of a trial."""

    def __init__(self, worker: Worker) -> None:
        self._job = worker.job
        name, env = worker.job.paths.ray_train_attempt(worker.job.attempt).name, os.environ
        super().__init__(
            experiment_name=name,
            world_size=worker.world_size,
            world_rank=worker.rank,
            local_rank=worker.local_rank,
            local_world_size=int(env.get("LOCAL_WORLD_SIZE", "1")),
            node_rank=int(env.get("NODE_RANK", env.get("GROUP_RANK", "0"))),
        )

    def get_storage(self) -> StorageContext:
        """A folder of the attempt."""
        return StorageContext(str(self._job.paths.ray_train), self.experiment_name)


class LoopSession(TrainFnUtils):
    """Answers the calls that a loop makes, on one rank.

    Args:
        worker: of this rank.
        own: Ray Train's object of this process, which has the data sets of a trainer; None if the
            loop has no trainer of its own.
    """

    def __init__(self, worker: Worker, own: TrainFnUtils | None = None) -> None:
        self._worker, self._own, self._context = worker, own, LoopContext(worker)
        if worker.rank == 0:
            adopt_kept(worker.job.paths)
        self._found = worker.resume()
        self._asked = self._ended = self._is_last = False
        self._calls, self._saved = 0, -1
        self._counter: StepCounter | None = None
        self._error: BaseException | None = None
        self._channel = LastReport(worker, is_kept=own is not None)
        worker.channel = self._channel

    def run(self, loop: Callable[[], Any]) -> None:
        """Call the loop, until it returns or its trial ends."""
        try:
            loop()
        except BaseException:
            if self._error is None and not self._ended:
                raise
        finally:
            self._channel.close()
        if self._error is not None:  # even if the loop caught it
            raise self._error

    def report(
        self,
        metrics: dict[str, Any],
        checkpoint: Checkpoint | None = None,
        checkpoint_dir_name: str | None = None,
        checkpoint_upload_mode: Any = None,
        delete_local_checkpoint_after_upload: bool | None = None,
        checkpoint_upload_fn: Callable[[Checkpoint, str], Checkpoint] | None = None,
        validation: Any = False,
    ) -> None:
        """See `ray.train.report`. Numbers of rank 0 are recorded; a checkpoint is copied at once.

        Raises:
            LoopEnded: the trial is over.
        """
        if validation:
            raise ValueError("`validation_config` was not set on the trainer")
        if self._ended:
            raise LoopEnded(0)
        saved = checkpoint
        self._calls += 1
        if checkpoint is not None and checkpoint_upload_fn is not None:
            name = checkpoint_dir_name or f"checkpoint_{self._calls:06d}"
            saved = checkpoint_upload_fn(checkpoint, name)
        try:
            self._report(metrics, saved)
        except BaseException as e:
            self._error = e
            raise
        if self._own is not None:  # what its trainer's fit() returns
            self._own.report(flat_numbers(metrics, ""), checkpoint)
        if checkpoint is not None and delete_local_checkpoint_after_upload:
            files: Any = checkpoint.filesystem
            files.delete_dir(checkpoint.path)
        if self._ended:
            raise LoopEnded(0)

    def _report(self, metrics: Mapping[str, Any], checkpoint: Checkpoint | None) -> None:
        worker = self._worker
        worker.on_report()
        if worker.world_size > 1 and not dist.is_initialized():
            raise UserError("the loop destroyed its process group and reported then; report before")
        worker.heartbeat()
        with worker.times.of("report"):
            every = self._sum_all(asked=float(self._asked), saves=float(checkpoint is not None))
            goes_on, saves = every["asked"] > 0, every["saves"] > 0
            own = self._number(metrics, goes_on) if worker.rank == 0 else None
            step, numbers, self._ended = worker.from_rank_zero(own)  # type: ignore[misc]
        if self._calls == 1 and self._found is not None and not goes_on:
            worker.begin_again()
        if self._ended:
            self._channel.deliver()
            return

        def save(folder: Path) -> None:
            if checkpoint is not None:
                with checkpoint.as_directory() as source:
                    shutil.copytree(source, folder, dirs_exist_ok=True)

        if numbers is not None:
            clock, max_t = numbers.get(worker.job.time_attr, step), worker.job.max_t
            self._is_last = max_t is not None and clock >= max_t
            answer = worker.report(
                step=step,
                metrics=numbers,
                checkpoint=save if saves else None,
                final=self._is_last,
                save_now=saves,
                as_reported=True,
            )
            self._ended = answer is not Answer.CONTINUE
        elif saves:
            worker.saver.begin(step, save, worker.barrier)
        self._saved = step if saves else self._saved

    def _sum_all(self, **said: float) -> dict[str, float]:
        try:
            return self._worker.sum_all(said)
        except RuntimeError as e:  # the text of `e` tells that this rank is not the cause
            raise RuntimeError(f"{_UNEVEN} ({e})") from e

    def _number(
        self, metrics: Mapping[str, Any], goes_on: bool
    ) -> tuple[int, dict[str, float] | None, bool]:
        """On rank 0: the step of a report; its numbers, None if it is no new one; and whether the
        trial is over before it.

        Args:
            metrics: as reported.
            goes_on: whether the loop asked for the checkpoint that was found.
        """
        job = self._worker.job
        numbers = flat_numbers(metrics, job.retention.metric)
        if self._counter is None:
            begin = self._found.step if self._found and goes_on else None
            self._counter = StepCounter(job, begin, shares_steps=True)
            if self._found is not None and not goes_on:
                warn_not_restored(job, "loop", "ray.train.get_checkpoint()")
        counter = self._counter
        if self._is_last:
            is_later = job.retention.metric in numbers and not counter.is_past(numbers)
            return counter.last, None, is_later
        return *((numbers and counter.number(numbers)) or (counter.last, None)), False

    def get_checkpoint(self) -> Checkpoint | None:
        """See `ray.train.get_checkpoint`: the one that was reported last, or found at the begin."""
        self._asked = True
        if self._saved >= 0:
            self._worker.saver.drain()
            folder = self._worker.job.paths.checkpoint(self._saved)
            if folder.is_dir():  # none is kept of a step whose metric is NaN
                return _at(folder)
        return None if self._found is None else _at(self._found.folder)

    def get_all_reported_checkpoints(
        self, consistency_mode: Any = None, timeout_s: float | None = None
    ) -> list[ReportedCheckpoint]:
        """See `ray.train.get_all_reported_checkpoints`: those that the sweep keeps."""
        paths, committed = self._worker.job.paths, ReportedCheckpointStatus.COMMITTED
        self._worker.saver.drain()
        values: dict[int, dict[str, Any]] = {r.step: r.metrics for r in read_reports(paths)}
        return [
            ReportedCheckpoint(_at(paths.checkpoint(step)), values.get(step, {}), committed)
            for step in paths.checkpoint_steps()
        ]

    def get_dataset_shard(self, dataset_info: Any) -> Any:
        """See `ray.train.get_dataset_shard`."""
        if self._own is None:
            raise UserError(NO_DATASETS)
        return self._own.get_dataset_shard(dataset_info)

    def get_context(self) -> LoopContext:
        """See `ray.train.get_context`."""
        return self._context

    def get_preemption_info(self) -> PreemptionInfo | None:
        """See `ray.train.get_preemption_info`: the ranks; of the machines only that they leave."""
        said = dict.fromkeys(map(str, range(self._worker.world_size)), 0.0)
        said[str(self._worker.rank)] = float(preemption_requested())
        ranks = sorted(int(rank) for rank, leaves in self._worker.sum_all(said).items() if leaves)
        return PreemptionInfo(None, {"": ranks}) if ranks else None

    def is_distributed(self) -> bool:
        """Whether Ray has chosen the devices."""
        return ray.is_initialized()

    def barrier(self) -> None:
        """See `ray.train.collective.barrier`."""
        self._worker.barrier()

    def broadcast_from_rank_zero(self, data: Any) -> Any:
        """See `ray.train.collective.broadcast_from_rank_zero`."""
        return self._worker.from_rank_zero(data)


def run_loop(
    worker: Worker,
    loop: Callable[[], Callable[[], Any]] | None = None,
    own: TrainFnUtils | None = None,
) -> None:
    """Import the script of a trial, and call its loop, in the trial's folder.

    Args:
        worker: of this rank.
        loop: gives the loop once the script is imported; None: the function that the sweep names.
        own: see `LoopSession`.
    """
    job, name = worker.job, loader.canonical(worker.job.trainable)
    worker.watch_output()
    with (
        loader.own_modules(name),
        private_folders(job.paths),
        attempt_lock(job.paths, job.attempt),
    ):
        if job.superseded:
            raise Superseded(f"attempt {job.attempt} was superseded by a newer one")
        with loop_session(worker, own) as session:
            with refuse_fit():
                script = loader.load(name)
                call = call_of(script, dict(job.config)) if loop is None else loop()
            session.run(call)


@contextmanager
def loop_session(worker: Worker, own: TrainFnUtils | None = None) -> Iterator[LoopSession]:
    """Within the block, the functions of `ray.train` lead to a trial."""
    before = train_fn_utils._train_fn_utils
    if worker.device.type == "cuda":
        torch.cuda.set_device(worker.device)
    session = LoopSession(worker, own)
    try:
        train_fn_utils.set_train_fn_utils(session)
        yield session
    finally:
        train_fn_utils.set_train_fn_utils(before)


def _at(folder: Path) -> Checkpoint:
    return Checkpoint.from_directory(str(folder))
