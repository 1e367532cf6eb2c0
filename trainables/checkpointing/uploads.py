"""Checkpoints on their way to object storage, behind the training and behind the disk.

What is on the disk is what counts: an upload that fails is told of in the log, and the next
checkpoint is sent again. Training never waits for one; the end of a trial does.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Protocol

from results.checkpoints.cleanup import prune
from results.checkpoints.commit import Checkpoint, newest_intact
from results.checkpoints.trial_mirror import OwnershipTakenError, TrialMirror
from results.storage.object_store import ContentMismatchError
from search_spaces.redaction import redact

if TYPE_CHECKING:
    from trainables.job import TrialJob

log = logging.getLogger(__name__)


class Uploads(Protocol):
    """Is told of every checkpoint that a trial has committed."""

    @property
    def pinned(self) -> frozenset[int]:
        """Steps whose checkpoints have to stay on the disk for now."""
        ...

    def add(self, step: int) -> None:
        """A checkpoint was committed; returns at once."""
        ...

    def close(self) -> None:
        """The trial is over: wait until the newest checkpoint is sent, or could not be."""
        ...


class NoUploads:
    """For a sweep without a mirror, and for all ranks but the first."""

    pinned: frozenset[int] = frozenset()

    def add(self, step: int) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


class MirrorUploads:
    """Sends one checkpoint at a time; of those that come meanwhile only the newest is sent next."""

    def __init__(self, job: TrialJob, mirror: TrialMirror) -> None:
        self._job, self._mirror = job, mirror
        self._changed = threading.Condition()
        self._waiting: int | None = None
        self._sending: int | None = None
        self._thread: threading.Thread | None = None

    @property
    def pinned(self) -> frozenset[int]:
        """See `Uploads`."""
        with self._changed:
            return frozenset(s for s in (self._waiting, self._sending) if s is not None)

    def add(self, step: int) -> None:
        """See `Uploads`."""
        with self._changed:
            self._waiting = step
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="upload", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """See `Uploads`."""
        thread = self._thread
        if thread is None:
            return
        thread.join()
        stay = self._job.protected(self._job.paths.checkpoint_steps())
        prune(self._job.paths, self._job.retention.newest, protected=stay)

    def _run(self) -> None:
        while (step := self._next()) is not None:
            try:
                self._mirror.send(self._job.paths, step)
                self._mirror.prune(self._job.retention.newest, self._job.protected)
            except OwnershipTakenError as e:
                log.warning("mirror: %s", e)
            except (OSError, ContentMismatchError, ValueError) as e:
                log.warning("mirror: step %d was not sent (%s)", step, redact(str(e)))

    def _next(self) -> int | None:
        with self._changed:
            self._sending, self._waiting = self._waiting, None
            if self._sending is None:
                self._thread = None
            return self._sending


def make_uploads(job: TrialJob, rank: int) -> Uploads:
    """What sends the checkpoints of a trial, on one of its ranks."""
    if job.mirror is None or rank > 0:
        return NoUploads()
    return MirrorUploads(job, TrialMirror(job.mirror, job.trial_id, job.attempt))


def restored(job: TrialJob, here: Checkpoint | None) -> Checkpoint | None:
    """The newest whole checkpoint of a trial: the folder's, or the mirror's if that is newer.

    Args:
        job: the trial.
        here: the newest whole one in the folder.

    Raises:
        OSError: the folder has none, earlier attempts may have left some in the mirror, and it
            cannot be asked.
    """
    if job.mirror is None:
        return here
    try:
        mirror = TrialMirror(job.mirror, job.trial_id, job.attempt)
        mirror.discard_unknown()
        fetched = mirror.fetch(job.paths, -1 if here is None else here.step)
    except OSError as e:
        if here is None and job.attempt > 1:
            raise
        log.warning("mirror: not asked for a newer checkpoint (%s)", redact(str(e)))
        return here
    return here if fetched is None else newest_intact(job.paths)
