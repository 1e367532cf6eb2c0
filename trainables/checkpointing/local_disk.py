"""Checkpoints on the disks of the machines (`checkpoint.local`): written there first, read there.

Each rank writes its files on its machine's disk, and copies them to the sweep folder while training
goes on. A checkpoint counts only in the sweep folder, with its manifest; what is here is a copy of
some of its files, and is read only where it matches the manifest.

    <local>/<trial>.<digest of its folder>/rank_00001/step_00000123/…
                                          /trial    where its folder is
"""

from __future__ import annotations

import hashlib
import logging
import mmap
import shutil
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from results.checkpoints.commit import Checkpoint, create_staging
from results.checkpoints.streaming_hash import (
    MIN_STREAMED_BYTES,
    hash_file,
    is_hash_sidecar,
    write_hashed,
)
from results.records.trial import read_trial
from results.storage.fault_injection import fault_point
from results.storage.retry import retry_io
from results.trial_paths import TrialPaths
from search_spaces.errors import UserError

if TYPE_CHECKING:
    from trainables.job import TrialJob

log = logging.getLogger(__name__)

_OWNER = "trial"
"""File with the path of the trial whose files are beside it."""


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
        self._owner = str(trial.absolute())
        self._trial = root / f"{trial.name}.{digest}"
        self._own = self._trial / f"rank_{rank:05d}"

    def stage(self, step: int, shared: Path) -> Path:
        """See `SharedFolder`."""
        folder = self._own / _name(step)
        create_staging(folder)
        (self._trial / _OWNER).write_text(self._owner)
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
        if not any(self._trial.glob("rank_*")):
            shutil.rmtree(self._trial, ignore_errors=True)

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
    remove_ended(Path(job.local))
    return LocalDisk(Path(job.local), job.paths.root, rank)


def remove_ended(root: Path) -> None:
    """Delete the files of trials that have ended and could not do it themselves: they failed."""
    for owner in root.glob(f"*/{_OWNER}"):
        with suppress(OSError, UserError):  # another rank deletes it, or its storage is not here
            if read_trial(TrialPaths(Path(owner.read_text()))).state.finished:
                shutil.rmtree(owner.parent, ignore_errors=True)


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
