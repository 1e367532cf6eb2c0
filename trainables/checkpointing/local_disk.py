"""Checkpoints on the disks of the machines (`checkpoint.local`): written there first, read there.

Each rank writes its files on its machine's disk, and copies them to the sweep folder while training
goes on. A checkpoint counts only in the sweep folder, with its manifest; what is here is a copy of
some of its files, and is read only where it matches the manifest.

    <local>/<trial>.<digest of its folder>/rank_00001/step_00000123/…
"""

from __future__ import annotations

import hashlib
import logging
import mmap
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from results.checkpoints.commit import Checkpoint, create_staging
from results.checkpoints.streaming_hash import (
    MIN_STREAMED_BYTES,
    hash_file,
    is_hash_sidecar,
    write_hashed,
)
from results.storage.fault_injection import fault_point
from results.storage.retry import retry_io

if TYPE_CHECKING:
    from trainables.job import TrialJob

log = logging.getLogger(__name__)


class SharedFolder:
    """Where a rank writes its part of a checkpoint: here, into the sweep folder itself."""

    sends_later = False
    """Whether the part must be sent after it is written."""

    def stage(self, step: int, shared: Path) -> Path:
        """The folder in which this rank writes, empty of its own files.

        Args:
            step: of the checkpoint.
            shared: its folder for all ranks.
        """
        return shared

    def send(self, step: int, shared: Path) -> None:
        """Copy what this rank has written into the folder for all ranks. Can be called again."""

    def keep(self, step: int) -> None:
        """Every rank has sent its part of this step: delete older ones of this rank."""

    def discard(self) -> None:
        """The trial will not be resumed: delete this rank's parts."""

    def nearest(self, found: Checkpoint) -> Checkpoint:
        """A checkpoint, read from this machine where that is possible."""
        return found


class LocalDisk(SharedFolder):
    """A folder on this rank's machine."""

    sends_later = True

    def __init__(self, root: Path, trial: Path, rank: int) -> None:
        """Find the place of a trial.

        Args:
            root: of all trials, on this machine.
            trial: the trial's folder in the sweep folder.
            rank: of this process.
        """
        digest = hashlib.sha256(str(trial).encode()).hexdigest()[:12]
        self._trial = root / f"{trial.name}.{digest}"
        self._own = self._trial / f"rank_{rank:05d}"

    def stage(self, step: int, shared: Path) -> Path:
        """See `SharedFolder`."""
        folder = self._own / _name(step)
        create_staging(folder)
        return folder

    def send(self, step: int, shared: Path) -> None:
        """See `SharedFolder`."""
        fault_point("checkpoint:local")
        folder = self._own / _name(step)
        for file in (f for f in folder.rglob("*") if f.is_file() and not is_hash_sidecar(f)):
            target = shared / file.relative_to(folder)
            target.parent.mkdir(parents=True, exist_ok=True)
            _copy(file, target)
        fault_point("checkpoint:sent")

    def keep(self, step: int) -> None:
        """See `SharedFolder`."""
        for other in self._own.iterdir():
            if other.name != _name(step):
                shutil.rmtree(other, ignore_errors=True)

    def discard(self) -> None:
        """See `SharedFolder`."""
        shutil.rmtree(self._own, ignore_errors=True)
        if self._trial.is_dir() and not any(self._trial.iterdir()):
            self._trial.rmdir()

    def nearest(self, found: Checkpoint) -> Checkpoint:
        """See `SharedFolder`. The folder is of links: to this machine's files, and to others."""
        here = {
            name: file
            for name in found.manifest.files
            for file in self._trial.glob(f"rank_*/{_name(found.step)}/{name}")
            if hash_file(file) == found.manifest.files[name]
        }
        if not here:
            return found
        folder = self._own / "resumed"
        create_staging(folder)
        for name in found.manifest.files:
            link = folder / name
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(here.get(name, found.folder / name).absolute())
        count, total = len(here), len(found.manifest.files)
        log.info("step %d: %d of %d files are on this machine", found.step, count, total)
        return Checkpoint(found.step, folder, found.manifest)


def make_place(job: TrialJob, rank: int) -> SharedFolder:
    """Where a rank of a trial writes."""
    if job.local is None:
        return SharedFolder()
    return LocalDisk(Path(job.local), job.paths.root, rank)


@retry_io
def _copy(source: Path, target: Path) -> None:
    """Copy a file, and hash it meanwhile if it is large."""
    if source.stat().st_size < MIN_STREAMED_BYTES:
        write_hashed(target, [memoryview(source.read_bytes())])
        return
    with (
        open(source, "rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
        memoryview(data) as content,
    ):
        write_hashed(target, [content])


def _name(step: int) -> str:
    return f"step_{step:08d}"
