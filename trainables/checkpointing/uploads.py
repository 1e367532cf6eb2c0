"""Uploads checkpoints to object storage in the background, after they are on the disk.

The disk has the authoritative copy: an upload that fails is logged, and the next checkpoint is
uploaded again. Training never waits for an upload; the end of a trial does.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from results.checkpoints.commit import Checkpoint, newest_intact
from results.storage.object_store import ContentMismatchError
from results.sweep_folder.copies.checkpoint_mirror import OwnershipTakenError, TrialMirror
from search_spaces.redaction import redact

if TYPE_CHECKING:
    from trainables.job import TrialJob

log = logging.getLogger(__name__)


class Uploads:
    """Receives every checkpoint that a trial commits.

    This class uploads nothing: it serves trials without a mirror, and all ranks but the first.
    """

    @property
    def pinned(self) -> frozenset[int]:
        """Steps whose checkpoints must stay on the disk until they are uploaded."""
        return frozenset()

    def add(self, step: int) -> None:
        """Upload a committed checkpoint; returns at once."""

    def close(self) -> None:
        """Wait until the newest checkpoint is uploaded, or its upload has failed."""


class MirrorUploads(Uploads):
    """Uploads one checkpoint at a time; then the newest of those added during the upload."""

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
        if (thread := self._thread) is not None:
            thread.join()

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
    """The uploads of a trial, on one of its ranks."""
    if job.mirror is None or rank > 0:
        return Uploads()
    return MirrorUploads(job, TrialMirror(job.mirror, job.trial_id, job.attempt))


def restore_newest(job: TrialJob, here: Checkpoint | None) -> Checkpoint | None:
    """The newest intact checkpoint of a trial: `here` in its folder, or the mirror's if newer.

    Raises:
        OSError: the folder has none, and the mirror, which may have one of an earlier attempt,
            cannot be reached.
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
        log.warning("mirror: cannot look for a newer checkpoint (%s)", redact(str(e)))
        return here
    return here if fetched is None else newest_intact(job.paths)
