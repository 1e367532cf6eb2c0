"""A trial's checkpoints in object storage, to resume after the machine and its disk are lost.

A checkpoint exists when its manifest does, which is sent last. Names contain the attempt and the
driver's token. So nothing is overwritten, and checkpoints that a driver sends after it lost the
sweep are recognised.
"""

from __future__ import annotations

import json
import logging
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from pydantic import ValidationError

from results.checkpoints.commit import MANIFEST, Manifest, commit, create_staging, staging_folder
from results.records.trial import read_reports
from results.storage.atomic import append_line, parse_lines
from results.storage.fault_injection import fault_point
from results.storage.object_store import ContentMismatchError, ObjectStore, open_object_store
from results.trial_paths import TrialPaths

log = logging.getLogger(__name__)

OWNER = "owner.json"
REPORTS = "reports.jsonl"
_DAMAGED = f"{MANIFEST}.damaged"
_NAME = re.compile(r"step_(\d{8,})\.attempt_(\d{4,})\.([0-9a-f]{8})")


@dataclass(frozen=True)
class MirrorLocation:
    """Place of a sweep's mirror. Plain data: it is sent between processes and machines.

    Attributes:
        address: location of all mirrored sweeps, such as `s3://bucket/prefix`.
        token: of the session that may write there, at least 8 hexadecimal digits.
    """

    address: str
    sweep: str
    token: str

    def open(self) -> ObjectStore:
        """Open the sweep's part of the storage."""
        return open_object_store(self.address).within(self.sweep)


class OwnershipTakenError(Exception):
    """Another driver took the sweep over: this one must not send any more."""


def check_owner(objects: ObjectStore, token: str) -> None:
    """Raise `OwnershipTakenError` unless the mirror belongs to the session with this token."""
    held = objects.read(OWNER)
    if held is None or json.loads(held).get("token") != token:
        raise OwnershipTakenError(f"{objects.address}: another driver has taken the sweep over")


@dataclass(frozen=True, order=True)
class MirroredCheckpoint:
    """A checkpoint in the mirror, as its name describes it."""

    step: int
    attempt: int
    token: str

    @property
    def name(self) -> str:
        """Prefix of the keys of its objects."""
        return f"step_{self.step:08d}.attempt_{self.attempt:04d}.{self.token}"


class TrialMirror:
    """The mirrored checkpoints of one trial, as one attempt sends and fetches them."""

    def __init__(self, location: MirrorLocation, trial_id: str, attempt: int) -> None:
        self._sweep, self._token = location.open(), location.token
        self._objects = self._sweep.within(f"trials/{trial_id}/checkpoints")
        self._attempt = attempt

    def send(self, paths: TrialPaths, step: int) -> None:
        """Send a committed checkpoint and the trial's reports so far.

        Raises:
            OwnershipTakenError: another driver owns the sweep.
            OSError: the storage failed.
            ContentMismatchError: the local checkpoint is damaged.
        """
        folder = paths.checkpoint(step)
        key = MirroredCheckpoint(step, self._attempt, self._token[:8]).name
        text = (folder / MANIFEST).read_bytes()
        manifest = Manifest.model_validate_json(text)
        for name, entry in manifest.files.items():
            self._objects.send(f"{key}/files/{name}", folder / name, entry.sha256)
            fault_point("mirror:file")
        self._objects.put(f"{key}/{REPORTS}", paths.reports.read_bytes())
        fault_point("mirror:files")
        check_owner(self._sweep, self._token)
        self._objects.put(f"{key}/{MANIFEST}", text)
        fault_point("mirror:manifest")

    def prune(self, keep: int, protected: Callable[[Sequence[int]], Collection[int]]) -> None:
        """Delete all but the newest checkpoints, and incomplete ones of dead attempts.

        Nothing is deleted unless the newest checkpoint is there with all its bytes.

        Args:
            keep: number of newest steps to keep.
            protected: maps the steps in the mirror, ascending, to further steps to keep.
        """
        found = self._objects.sizes("")
        checkpoints = self._checkpoints(found)
        if not checkpoints or not self._is_complete(checkpoints[-1], found):
            return
        steps = sorted({c.step for c in checkpoints})
        kept = {*steps[-keep:], *protected(steps)}
        for checkpoint in checkpoints:
            if checkpoint.step not in kept:
                self._discard(checkpoint)
        self._remove_incomplete(found)
        fault_point("mirror:pruned")

    def fetch(self, paths: TrialPaths, newer_than: int) -> int | None:
        """Fetch the newest intact checkpoint into the trial's folder.

        The manifest of a damaged one is renamed, and the checkpoint before it is tried.

        Args:
            newer_than: step of the newest intact checkpoint in the folder; -1 for none.

        Returns:
            The step that was fetched; None if there is no newer one.
        """
        newer = (c for c in reversed(self._checkpoints()) if c.step > newer_than)
        known = filter(self._is_known, newer)
        return next((c.step for c in known if self._try_fetch(c, paths)), None)

    def discard_unknown(self) -> None:
        """Delete checkpoints of attempts that this driver's records do not have.

        They have this attempt's number or a higher one and another token: a driver that had lost
        the sweep sent them.

        Raises:
            OwnershipTakenError: another driver owns the sweep.
        """
        unknown = [c for c in self._checkpoints() if not self._is_known(c)]
        if unknown:
            check_owner(self._sweep, self._token)
        for checkpoint in unknown:
            self._discard(checkpoint)

    def merge_reports(self, paths: TrialPaths) -> None:
        """Add the reports that were sent with the newest checkpoint to the trial's folder."""
        if known := list(filter(self._is_known, self._checkpoints())):
            self._merge(known[-1], paths)

    def _is_known(self, checkpoint: MirroredCheckpoint) -> bool:
        return checkpoint.attempt < self._attempt or checkpoint.token == self._token[:8]

    def _try_fetch(self, checkpoint: MirroredCheckpoint, paths: TrialPaths) -> bool:
        folder = staging_folder(paths, checkpoint.step, 0)
        name = checkpoint.name
        try:
            manifest = self._manifest(checkpoint)
            create_staging(folder)
            for file, entry in manifest.files.items():
                target = folder / file
                if not target.resolve().is_relative_to(folder.resolve()):
                    raise ContentMismatchError(f"{file} points outside of the folder")
                self._objects.fetch(f"{name}/files/{file}", target, entry.sha256)
        except (FileNotFoundError, ContentMismatchError, ValidationError) as e:
            reason = str(e).splitlines()[0]
            log.warning("mirror: %s/%s is damaged (%s)", self._objects.address, name, reason)
            self._objects.rename(f"{name}/{MANIFEST}", f"{name}/{_DAMAGED}")
            return False
        self._merge(checkpoint, paths)
        step = checkpoint.step
        commit(folder, paths.checkpoint(step), step=step, binding=manifest.binding)
        log.warning("checkpoint of step %d fetched from %s", checkpoint.step, self._objects.address)
        return True

    def _merge(self, checkpoint: MirroredCheckpoint, paths: TrialPaths) -> None:
        """Append the reports that the trial's folder lacks, so that it has all before this step."""
        known = {(r.step, r.attempt) for r in read_reports(paths)}
        for line in (self._objects.read(f"{checkpoint.name}/{REPORTS}") or b"").split(b"\n"):
            for report in parse_lines(line):
                if (report.get("step"), report.get("attempt")) not in known:
                    append_line(paths.reports, line.decode())

    def _checkpoints(self, found: Collection[str] | None = None) -> list[MirroredCheckpoint]:
        """Checkpoints that have a manifest, the newest last; default: of all keys."""
        keys = self._objects.sizes("") if found is None else found
        names = (key.partition("/") for key in keys)
        matches = (_NAME.fullmatch(name) for name, _, file in names if file == MANIFEST)
        return sorted(MirroredCheckpoint(int(m[1]), int(m[2]), m[3]) for m in matches if m)

    def _is_complete(self, checkpoint: MirroredCheckpoint, found: dict[str, int]) -> bool:
        files = self._manifest(checkpoint).files
        return all(found.get(f"{checkpoint.name}/files/{n}") == e.size for n, e in files.items())

    def _manifest(self, checkpoint: MirroredCheckpoint) -> Manifest:
        data = self._objects.read(f"{checkpoint.name}/{MANIFEST}")
        manifest = Manifest.model_validate_json(data or b"")
        if manifest.step != checkpoint.step:
            raise ContentMismatchError(f"{MANIFEST} is of step {manifest.step}")
        return manifest

    def _discard(self, checkpoint: MirroredCheckpoint) -> None:
        # the manifest first: an interrupted deletion leaves nothing that looks complete
        self._objects.remove(f"{checkpoint.name}/{MANIFEST}")
        fault_point("mirror:discarding")
        self._objects.remove(checkpoint.name, recursive=True)

    def _remove_incomplete(self, found: Collection[str]) -> None:
        """Delete checkpoints that were never completed, but not those found damaged."""
        files: dict[str, set[str]] = defaultdict(set)
        for key in found:
            name, _, file = key.partition("/")
            files[name].add(file)
        for name, has in files.items():
            old = (m := _NAME.fullmatch(name)) is not None and int(m[2]) <= self._attempt
            if old and has.isdisjoint({MANIFEST, _DAMAGED}):
                self._objects.remove(name, recursive=True)
