"""A trial's checkpoints in object storage, for when the machine and its disk are gone.

A checkpoint is there when its manifest is, which is sent last. Each attempt writes under names of
its own, so nothing that is there is overwritten, and what a driver that lost the sweep still sends
is told apart.
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
from results.paths import TrialPaths
from results.records.trial import read_reports
from results.storage.atomic import append_line, parse_lines
from results.storage.fault_injection import fault_point
from results.storage.object_store import ContentMismatchError, ObjectStore, open_object_store

log = logging.getLogger(__name__)

OWNER = "owner.json"
REPORTS = "reports.jsonl"
_DAMAGED = f"{MANIFEST}.damaged"
_NAME = re.compile(r"step_(\d{8,})\.attempt_(\d{4,})\.([0-9a-f]{8})")


@dataclass(frozen=True)
class MirrorLocation:
    """Where a sweep is kept beside its folder. Plain data: it crosses processes and machines.

    Attributes:
        address: of all mirrored sweeps, such as `s3://bucket/prefix`.
        sweep: its name.
        token: of the session that may write there, at least 8 hexadecimal digits.
    """

    address: str
    sweep: str
    token: str

    def open(self) -> ObjectStore:
        """The sweep's part of the storage."""
        return open_object_store(self.address).within(self.sweep)


class OwnershipTakenError(Exception):
    """Another driver has taken the sweep over: this one sends nothing more."""


def check_owner(objects: ObjectStore, token: str) -> None:
    """Raises `OwnershipTakenError` unless the session of this token may write to the mirror."""
    held = objects.read(OWNER)
    if held is None or json.loads(held).get("token") != token:
        raise OwnershipTakenError(f"{objects.address}: another driver has taken the sweep over")


@dataclass(frozen=True, order=True)
class MirroredCheckpoint:
    """A checkpoint in the mirror, by what its name says."""

    step: int
    attempt: int
    token: str

    @property
    def name(self) -> str:
        """Part of the keys of its objects."""
        return f"step_{self.step:08d}.attempt_{self.attempt:04d}.{self.token}"


class TrialMirror:
    """The checkpoints of one trial, as one attempt sees them."""

    def __init__(self, place: MirrorLocation, trial_id: str, attempt: int) -> None:
        self._sweep, self._token = place.open(), place.token
        self._objects = self._sweep.within(f"trials/{trial_id}/checkpoints")
        self._attempt = attempt

    def send(self, paths: TrialPaths, step: int) -> None:
        """Send a committed checkpoint, with the reports that led to it.

        Raises:
            OwnershipTakenError: another driver has the sweep.
            OSError, Mismatch: the storage failed, or the local checkpoint is damaged.
        """
        folder, kept = (
            paths.checkpoint(step),
            MirroredCheckpoint(step, self._attempt, self._token[:8]),
        )
        text = (folder / MANIFEST).read_bytes()
        manifest = Manifest.model_validate_json(text)
        for name, entry in manifest.files.items():
            self._objects.send(f"{kept.name}/files/{name}", folder / name, entry.sha256)
            fault_point("mirror:file")
        self._objects.put(f"{kept.name}/{REPORTS}", paths.reports.read_bytes())
        fault_point("mirror:files")
        check_owner(self._sweep, self._token)
        self._objects.put(f"{kept.name}/{MANIFEST}", text)
        fault_point("mirror:manifest")

    def prune(self, keep: int, protected: Callable[[Sequence[int]], Collection[int]]) -> None:
        """Delete all but the newest checkpoints, and what dead attempts left half sent.

        Nothing is deleted unless the newest one is there with all its bytes.

        Args:
            keep: how many of the newest stay.
            protected: of the steps that are there, ascending, those that stay too.
        """
        found = self._objects.sizes("")
        there = self._kept(found)
        if not there or not self._is_complete(there[-1], found):
            return  # the good ones stay
        steps = sorted({k.step for k in there})
        stay = {*steps[-keep:], *protected(steps)}
        for kept in there:
            if kept.step not in stay:
                self._discard(kept)
        self._sweep_up(found)
        fault_point("mirror:pruned")

    def fetch(self, paths: TrialPaths, newer_than: int) -> int | None:
        """Bring the newest whole checkpoint back to the trial's folder.

        One that is damaged is put aside, and the one before is taken.

        Args:
            paths: of the trial.
            newer_than: a step of which the folder has a whole one; -1 for none.

        Returns:
            Its step, or None if there is none that is newer.
        """
        for kept in reversed(self._kept(self._objects.sizes(""))):
            if kept.step <= newer_than:
                return None
            if self._is_known(kept) and self._fetched(kept, paths):
                return kept.step
        return None

    def discard_unknown(self) -> None:
        """Delete what attempts of this number or above have left: it was sent for a driver that had
        lost the sweep, and no record knows of it.

        Raises:
            OwnershipTakenError: another driver has the sweep.
        """
        strange = [k for k in self._kept(self._objects.sizes("")) if not self._is_known(k)]
        if strange:
            check_owner(self._sweep, self._token)
        for kept in strange:
            self._discard(kept)

    def merge_reports(self, paths: TrialPaths) -> None:
        """Take over the reports that came with the newest checkpoint."""
        known = [k for k in self._kept(self._objects.sizes("")) if self._is_known(k)]
        if known:
            self._merge(known[-1], paths)

    def _is_known(self, kept: MirroredCheckpoint) -> bool:
        return kept.attempt < self._attempt or kept.token == self._token[:8]

    def _fetched(self, kept: MirroredCheckpoint, paths: TrialPaths) -> bool:
        folder = staging_folder(paths, kept.step, 0)
        try:
            manifest = self._manifest(kept)
            create_staging(folder)
            for name, entry in manifest.files.items():
                target = folder / name
                if not target.resolve().is_relative_to(folder.resolve()):
                    raise ContentMismatchError(f"{name} points outside of the folder")
                self._objects.fetch(f"{kept.name}/files/{name}", target, entry.sha256)
        except (FileNotFoundError, ContentMismatchError, ValidationError) as e:
            said = str(e).splitlines()[0]
            log.warning("mirror: %s/%s is damaged (%s)", self._objects.address, kept.name, said)
            self._objects.rename(f"{kept.name}/{MANIFEST}", f"{kept.name}/{_DAMAGED}")
            return False
        self._merge(kept, paths)
        commit(folder, paths.checkpoint(kept.step), step=kept.step)
        log.warning("checkpoint of step %d fetched from %s", kept.step, self._objects.address)
        return True

    def _merge(self, kept: MirroredCheckpoint, paths: TrialPaths) -> None:
        """Append the reports that the trial's folder lacks: none is to be missing before a step."""
        there = {(r.step, r.attempt) for r in read_reports(paths)}
        for line in (self._objects.read(f"{kept.name}/{REPORTS}") or b"").split(b"\n"):
            for report in parse_lines(line):
                if (report.get("step"), report.get("attempt")) not in there:
                    append_line(paths.reports, line.decode())

    def _kept(self, found: Collection[str]) -> list[MirroredCheckpoint]:
        """Checkpoints that have a manifest, the newest last."""
        names = (key.partition("/") for key in found)
        matches = (_NAME.fullmatch(name) for name, _, file in names if file == MANIFEST)
        return sorted(MirroredCheckpoint(int(m[1]), int(m[2]), m[3]) for m in matches if m)

    def _is_complete(self, kept: MirroredCheckpoint, found: dict[str, int]) -> bool:
        files = self._manifest(kept).files
        return all(found.get(f"{kept.name}/files/{n}") == e.size for n, e in files.items())

    def _manifest(self, kept: MirroredCheckpoint) -> Manifest:
        data = self._objects.read(f"{kept.name}/{MANIFEST}")
        manifest = Manifest.model_validate_json(data or b"")
        if manifest.step != kept.step:
            raise ContentMismatchError(f"{MANIFEST} is of step {manifest.step}")
        return manifest

    def _discard(self, kept: MirroredCheckpoint) -> None:
        # the manifest first: a deletion that dies half way leaves nothing that looks whole
        self._objects.remove(f"{kept.name}/{MANIFEST}")
        fault_point("mirror:discarding")
        self._objects.remove(kept.name, recursive=True)

    def _sweep_up(self, found: Collection[str]) -> None:
        """Delete what was never completed, but not what was put aside as damaged."""
        files: dict[str, set[str]] = defaultdict(set)
        for key in found:
            name, _, file = key.partition("/")
            files[name].add(file)
        for name, has in files.items():
            old = (m := _NAME.fullmatch(name)) is not None and int(m[2]) <= self._attempt
            if old and has.isdisjoint({MANIFEST, _DAMAGED}):
                self._objects.remove(name, recursive=True)
