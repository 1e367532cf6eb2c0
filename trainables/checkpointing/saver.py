"""Saves checkpoints in the background: state is copied at once, a thread writes the copy.

A save function writes everything when it is called, or it copies the state and returns a function
that writes the copy, as `copy_progress` does. Training waits for the call only. Copies by
`trainables.checkpointing.training_state` stay valid until the next save begins.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from results.checkpoints.binding import binding_of
from results.checkpoints.checkpoint_times import append_time
from results.checkpoints.cleanup import prune
from results.checkpoints.commit import MANIFEST, Manifest, commit, create_staging, staging_folder
from results.storage.atomic import DISK_FULL_ERRNOS, free_space
from results.storage.fault_injection import fault_point
from results.storage.retry import retry_io
from results.trial_paths import TrialPaths
from trainables.checkpointing.host_buffers import HostBuffers
from trainables.checkpointing.local_disk import make_place
from trainables.checkpointing.uploads import make_uploads

if TYPE_CHECKING:
    from trainables.job import TrialJob


T = TypeVar("T")

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 15.0
_MESSAGES = re.compile(r"No space left|os error 28|quota exceeded|File too large", re.IGNORECASE)
"""Messages of safetensors, torch and our own writers; not all of their errors have an `errno`."""


class DiskFullError(Exception):
    """The disk was full for longer than a checkpoint may wait."""


def is_full(error: BaseException) -> bool:
    """Whether an error says that the disk is full or a quota is reached."""
    if isinstance(error, OSError) and error.errno in DISK_FULL_ERRNOS:
        return True
    return _MESSAGES.search(str(error)) is not None


def retry_when_full(write: Callable[[], T], paths: TrialPaths, step: int, wait_s: float) -> T:
    """Write, and retry while the disk is full, for a limited time. The first failure is logged.

    Args:
        write: can be called again after a failure.
        paths, step: the trial and the step of the checkpoint, for messages.
        wait_s: longest time to wait, in seconds.

    Returns:
        The result of `write`.

    Raises:
        DiskFullError: it stayed full; the message has the needed and the free bytes.
    """
    until, pause, first = time.monotonic() + wait_s, FIRST_PAUSE_S, True
    while True:
        try:
            return write()
        except Exception as e:
            if not is_full(e):
                raise
            problem = f"step {step}: the disk is full, {_needed_and_free(paths)}"
            if time.monotonic() >= until:
                waited = f"waited {wait_s:.0f} s for free space (checkpoint.wait_for_room)"
                raise DiskFullError(f"checkpoint of {problem}; {waited}") from e
            if first:
                log.warning(
                    "checkpoint of %s; waiting up to %.0f s for free space", problem, wait_s
                )
            time.sleep(min(pause, max(0.0, until - time.monotonic())))
            pause, first = min(2 * pause, LONGEST_PAUSE_S), False


def _needed_and_free(paths: TrialPaths) -> str:
    """Size of the newest checkpoint, and free bytes."""
    free = f"{paths.checkpoints} has {free_space(paths.checkpoints)[0]}"
    needed = _size(paths.newest_checkpoint())
    return free if needed is None else f"the one before has {needed} bytes, {free}"


def _size(folder: Path | None) -> int | None:
    try:
        text = (folder / MANIFEST).read_bytes() if folder else b""
        return sum(e.size for e in Manifest.model_validate_json(text).files.values())
    except (OSError, ValueError):
        return None


DeferredWrite = Callable[[], None]
"""Writes the copy that a save function made. Called again if the storage fails or is full."""
SaveFn = Callable[[Path], DeferredWrite | None]
"""Saves this rank's part of a checkpoint in the folder that all ranks share, or copies it and
returns a function that writes the copy."""

log = logging.getLogger(__name__)

_RANKS_TIMEOUT = timedelta(minutes=30)


def in_parallel(*parts: DeferredWrite) -> DeferredWrite:
    """Write several parts at the same time, each in its own thread."""

    def write() -> None:
        with ThreadPoolExecutor(len(parts)) as pool:
            for part in [pool.submit(part) for part in parts]:
                part.result()

    return write


class Superseded(Exception):
    """A newer attempt of the trial has begun, so this one is an orphan and must not write."""


class Saver:
    """Saves the checkpoints of a trial on one rank; at most one is in progress.

    Attributes:
        place: where this rank writes.
    """

    def __init__(self, job: TrialJob, rank: int, world_size: int) -> None:
        self._job, self._rank, self._world_size = job, rank, world_size
        self._thread: threading.Thread | None = None
        self._on_disk = threading.Event()
        self._on_disk.set()
        self._error: BaseException | None = None
        self._group: Any = None
        self._uploads = make_uploads(job, rank)
        self.place = make_place(job, rank)
        self._buffers = HostBuffers()

    def begin(self, step: int, save: SaveFn, barrier: Callable[[], None]) -> None:
        """Copy the state, after the previous checkpoint is finished; every rank calls this.

        Raises:
            Exception: this copy or the previous checkpoint failed.
        """
        self.drain()
        folder = staging_folder(self._job.paths, step, self._job.attempt)
        if self._rank == 0:
            create_staging(folder)
        if self._group is None and self._world_size > 1:
            self._group = _own_group()
        began = time.perf_counter()
        barrier()
        result: object = self._save(self.place.stage(step, folder), step, save)
        rest = result if callable(result) else None  # a lambda returns whatever its write returns
        self._on_disk.clear()
        self._thread = threading.Thread(
            target=self._finish, args=(step, folder, rest, began), name="checkpoint", daemon=True
        )
        self._thread.start()
        if not self._job.checkpoint_async:
            self.drain()

    def wait(self) -> None:
        """Wait until the checkpoint in progress is on the disk.

        Raises:
            Exception: it could not be written.
        """
        self._on_disk.wait()
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def drain(self) -> None:
        """Wait until all background work is finished, the deletion of old checkpoints included.

        Raises:
            Exception: the last checkpoint could not be written.
        """
        self._join()
        self.wait()

    def close(self) -> None:
        """Finish the work in progress and free all resources; the trial is over on this rank."""
        self._join()
        self._buffers.clear()
        if self._group is not None:
            import torch.distributed as dist

            dist.destroy_process_group(self._group)
            self._group = None
        self._uploads.close()
        if self._job.mirror is not None and self._rank == 0:
            self._clean_up()  # of what stayed until it was uploaded

    def _join(self) -> None:
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _save(self, folder: Path, step: int, save: SaveFn) -> object:
        def copy() -> object:
            with self._buffers.reuse():
                return save(folder)

        return self._retry_when_full(copy, step)

    def _retry_when_full(self, write: Callable[[], T], step: int) -> T:
        return retry_when_full(write, self._job.paths, step, self._job.wait_for_room_s)

    def _finish(self, step: int, folder: Path, rest: DeferredWrite | None, began: float) -> None:
        committed = False
        try:
            self._write(step, rest)
            if self.place.sends_later and self._error is None:
                self._on_disk.set()  # training does not wait for what follows
                self._write(step, lambda: self.place.send(step, folder))
            if self._all_wrote():
                if self._rank == 0:
                    fault_point("checkpoint:saved")
                    self._commit(step, folder, began)
                    committed = True
                self.place.keep(step)
        except BaseException as e:  # noqa: BLE001 - raised again in the training thread
            self._error = self._error or e
        finally:
            self._on_disk.set()
        if committed:
            self._clean_up()

    def _write(self, step: int, rest: DeferredWrite | None) -> None:
        """Write this rank's part. An error is kept until all ranks know that there is one."""
        try:
            if rest is not None:
                self._retry_when_full(retry_io(rest), step)
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

    def _commit(self, step: int, folder: Path, began: float) -> None:
        job = self._job
        if job.superseded:
            raise Superseded(f"attempt {job.attempt} was superseded by a newer one")
        final, binding = job.paths.checkpoint(step), binding_of(job.paths)
        made = self._retry_when_full(
            lambda: commit(folder, final, step=step, binding=binding), step
        )
        append_time(job.paths, job.attempt, "save", time.perf_counter() - began, made)
        self._uploads.add(step)

    def _clean_up(self) -> None:
        """Delete checkpoints that are not needed any more. An error does not fail the training."""
        job = self._job
        try:
            stay = job.protected(job.paths.checkpoint_steps()) | self._uploads.pinned
            if not job.superseded:  # otherwise the newer attempt decides
                prune(job.paths, job.retention.newest, protected=stay)
        except OSError as e:
            log.warning("older checkpoints could not be deleted (%s)", e)


def _own_group() -> Any:
    """A process group for the saving threads: training uses the trial's own group meanwhile."""
    import torch.distributed as dist

    return dist.new_group(backend="gloo", timeout=_RANKS_TIMEOUT)
