"""Checkpoints written behind the training: state is copied at once, a thread writes the copy.

A save function writes everything when it is called, or it copies the state and returns a function
that writes the copy, as `copy_progress` does. Training waits for the call only. What is copied with
`trainables.checkpointing.training_state` stays valid until the next save begins.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from results.checkpoints.cleanup import prune
from results.checkpoints.commit import commit, create_staging, staging_folder
from results.storage.fault_injection import fault_point
from results.storage.retry import retry_io
from trainables.checkpointing.disk_full import retry_when_full
from trainables.checkpointing.host_buffers import HostBuffers
from trainables.checkpointing.uploads import make_uploads

if TYPE_CHECKING:
    from trainables.job import TrialJob

DeferredWrite = Callable[[], None]
"""Writes what a save function has copied out; again, where the storage fails or is full."""
SaveFn = Callable[[Path], DeferredWrite | None]
"""Saves this rank's part of a checkpoint in a folder that all ranks share, or the rest later."""

log = logging.getLogger(__name__)

_RANKS_TIMEOUT = timedelta(minutes=30)


def in_parallel(*parts: DeferredWrite) -> DeferredWrite:
    """Write several parts at once, each in a thread: neither the disk nor a core waits."""

    def write() -> None:
        with ThreadPoolExecutor(len(parts)) as pool:
            for part in [pool.submit(part) for part in parts]:
                part.result()

    return write


class Superseded(Exception):
    """A newer attempt of the trial has begun: this one is an orphan, and writes nothing."""


class Saver:
    """One rank's side of the checkpoints of a trial; at most one is under way."""

    def __init__(self, job: TrialJob, rank: int, world_size: int) -> None:
        self._job, self._rank, self._world_size = job, rank, world_size
        self._thread: threading.Thread | None = None
        self._on_disk = threading.Event()
        self._on_disk.set()
        self._error: BaseException | None = None
        self._group: Any = None
        self._uploads = make_uploads(job, rank)
        self._buffers = HostBuffers()

    def begin(self, step: int, save: SaveFn, barrier: Callable[[], None]) -> None:
        """Every rank: copy the state out, once all that the checkpoint before asked for is done.

        Args:
            step: at which the trial is.
            save: of this rank.
            barrier: of all ranks.

        Raises:
            Exception: whatever went wrong with this one's copy, or the one before.
        """
        self.settle()
        folder = staging_folder(self._job.paths, step, self._job.attempt)
        if self._rank == 0:
            create_staging(folder)
        if self._group is None and self._world_size > 1:
            self._group = _own_group()
        barrier()
        made: object = self._save(folder, step, save)
        rest = made if callable(made) else None  # a lambda that writes returns what write() does
        self._on_disk.clear()
        self._thread = threading.Thread(
            target=self._finish, args=(step, folder, rest), name="checkpoint", daemon=True
        )
        self._thread.start()
        if not self._job.checkpoint_async:
            self.settle()

    def wait(self) -> None:
        """Wait until the checkpoint that is under way is on the disk.

        Raises:
            Exception: what kept it from getting there.
        """
        self._on_disk.wait()
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def settle(self) -> None:
        """Wait until nothing is done behind the training: older checkpoints are deleted too.

        Raises:
            Exception: what kept the last one from the disk.
        """
        self._join()
        self.wait()

    def close(self) -> None:
        """The trial is over on this rank, well or not: let what is under way come to its end."""
        self._join()
        self._buffers.clear()
        if self._group is not None:
            import torch.distributed as dist

            dist.destroy_process_group(self._group)
            self._group = None
        self._uploads.close()

    def _join(self) -> None:
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _save(self, folder: Path, step: int, save: SaveFn) -> object:
        made: list[object] = []
        job = self._job

        def copy() -> None:
            with self._buffers.reused():
                made.append(save(folder))

        retry_when_full(copy, job.paths, step, job.wait_for_room_s)
        return made[0]

    def _finish(self, step: int, folder: Path, rest: DeferredWrite | None) -> None:
        committed = False
        try:
            self._write(step, rest)
            if self._all_wrote() and self._rank == 0:
                fault_point("checkpoint:saved")
                self._commit(step, folder)
                committed = True
        except BaseException as e:  # noqa: BLE001 - raised again in the training thread
            self._error = self._error or e
        finally:
            self._on_disk.set()
        if committed:
            self._tidy(step)

    def _write(self, step: int, rest: DeferredWrite | None) -> None:
        """This rank's part; what goes wrong is kept until all ranks have heard of it."""
        try:
            if rest is not None:
                retry_when_full(retry_io(rest), self._job.paths, step, self._job.wait_for_room_s)
        except BaseException as e:  # noqa: BLE001 - raised again in the training thread
            self._error = e

    def _all_wrote(self) -> bool:
        """Whether every rank has written its part."""
        if self._group is None:
            return self._error is None
        import torch
        import torch.distributed as dist

        failures = torch.tensor(float(self._error is not None))
        dist.all_reduce(failures, group=self._group)
        if failures > 0 and self._error is None:
            raise RuntimeError("another rank could not write its part of the checkpoint")
        return self._error is None

    def _commit(self, step: int, folder: Path) -> None:
        job = self._job
        if job.superseded:
            raise Superseded(f"attempt {job.attempt} was superseded by a newer one")

        def publish() -> None:
            commit(folder, job.paths.checkpoint(step), step=step)

        retry_when_full(publish, job.paths, step, job.wait_for_room_s)
        self._uploads.add(step)

    def _tidy(self, step: int) -> None:
        """Delete what is not needed any more; training does not fail for it."""
        job = self._job
        try:
            stay = job.protected(job.paths.checkpoint_steps()) | self._uploads.pinned
            if not job.superseded:  # what is old is the newer attempt's to judge
                prune(job.paths, job.retention.newest, protected=stay)
        except OSError as e:
            log.warning("checkpoint of step %d: older ones could not be deleted (%s)", step, e)


def _own_group() -> Any:
    """A process group of the saving threads alone: the trial's own is busy with the training."""
    import torch.distributed as dist

    return dist.new_group(backend="gloo", timeout=_RANKS_TIMEOUT)
