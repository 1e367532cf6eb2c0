"""Verifies the checkpoints that Ray Train keeps for a user's train loop.

Ray Train keeps them without hashes, and gives a damaged one to its workers. So each reported
checkpoint gets a manifest beside it. Each attempt has its own folder, so that an orphan does no
harm, and begins with the intact checkpoints of earlier attempts in it, where Ray Train finds them.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from results.checkpoints.binding import binding_of
from results.checkpoints.commit import (
    DAMAGED,
    CheckpointError,
    Manifest,
    require_own,
    sync_and_hash,
    verify,
)
from results.storage.atomic import write_atomic
from results.trial_paths import TrialPaths
from trainables.job import TrialJob

log = logging.getLogger(__name__)

SNAPSHOT = "checkpoint_manager_snapshot.json"
_lock = threading.Lock()


@dataclass(frozen=True)
class KeptCheckpoint:
    """A checkpoint that Ray Train keeps and that has a manifest."""

    step: int
    folder: Path


def add_manifest(paths: TrialPaths, folder: Path, step: int) -> None:
    """Make a checkpoint durable and write its manifest.

    Does nothing if it has a manifest, or if it is not there any more.
    """
    with _lock:
        target = paths.ray_train_manifest(folder)
        if target.exists():
            return
        try:
            manifest = Manifest(step=step, files=sync_and_hash(folder), binding=binding_of(paths))
        except FileNotFoundError:
            return
        if manifest.files:
            write_atomic(target, manifest.model_dump_json(indent=1).encode())


def prune(job: TrialJob) -> None:
    """Delete the checkpoints of an attempt that its job does not keep, and their manifests.

    Those that have no manifest yet stay.
    """
    with _lock:
        known = newest_first(job.paths, [job.paths.ray_train_attempt(job.attempt)])
        protected = job.protected(sorted({found.step for found in known if found.step >= 0}))
        for found in known[job.retention.newest :]:
            if found.step not in protected:
                job.paths.ray_train_manifest(found.folder).unlink(missing_ok=True)
                shutil.rmtree(found.folder, ignore_errors=True)


def add_missing_manifests(paths: TrialPaths, attempt: int, step: int) -> None:
    """Write the manifests that are still missing at the end of an attempt."""
    for name in reported_checkpoints(paths.ray_train_attempt(attempt)):
        folder = paths.ray_train_attempt(attempt) / name
        if folder.is_dir():
            add_manifest(paths, folder, step)


def prepare_attempt(
    paths: TrialPaths, attempt: int, snapshot: Callable[[list[str]], str]
) -> int | None:
    """Prepare the folder of an attempt: link the intact checkpoints into it.

    Damaged checkpoints are renamed; the folders of earlier attempts are deleted.

    Args:
        paths, attempt: of the new attempt.
        snapshot: makes Ray Train's list of checkpoints from their names, the newest last.

    Returns:
        The step from which the loop resumes, or None for a fresh start.
    """
    here = paths.ray_train_attempt(attempt)
    shutil.rmtree(here, ignore_errors=True)
    kept = newest_first(paths, paths.ray_train_attempts())
    intact = [found for found in kept if _is_intact(paths, found)]
    linked = [_link(paths, found, here) for found in reversed(intact)]
    if linked:
        write_atomic(here / SNAPSHOT, snapshot([folder.name for folder in linked]).encode())
    for old in paths.ray_train_attempts():
        if old != here:
            shutil.rmtree(old, ignore_errors=True)
    return intact[0].step if intact else None


def newest_first(paths: TrialPaths, attempts: Iterable[Path]) -> list[KeptCheckpoint]:
    """The checkpoints that have a manifest; of one step, the one that was written last."""
    found = []
    for folder in (folder for attempt in attempts for folder in attempt.glob("*/")):
        try:
            manifest = paths.ray_train_manifest(folder)
            written = manifest.stat().st_mtime_ns
            step = Manifest.model_validate_json(manifest.read_bytes()).step
        except FileNotFoundError:  # it was not complete, or is being hashed
            continue
        except (OSError, ValueError):
            step = -1
        found.append((step, folder.parent.name[-4:], written, folder))
    return [KeptCheckpoint(key[0], key[3]) for key in sorted(found, reverse=True)]


def verify_kept(paths: TrialPaths, found: KeptCheckpoint) -> Manifest:
    """Compare a checkpoint with its manifest.

    Raises:
        CheckpointError: it is not intact, or another trial's.
    """
    manifest = verify(found.folder, manifest=paths.ray_train_manifest(found.folder))
    require_own(found.folder, manifest, binding_of(paths))
    return manifest


def _is_intact(paths: TrialPaths, found: KeptCheckpoint) -> bool:
    """Whether every byte is as it was written; a damaged checkpoint is renamed."""
    try:
        verify_kept(paths, found)
    except CheckpointError as e:
        aside = paths.ray_train / f"{found.folder.name}{DAMAGED}"
        shutil.rmtree(aside, ignore_errors=True)
        os.rename(found.folder, aside)
        log.warning("checkpoint renamed to %s: %s", aside.name, e.reason)
        return False
    return True


def _link(paths: TrialPaths, found: KeptCheckpoint, here: Path) -> Path:
    """Link a checkpoint into the folder of another attempt; the manifest comes last."""
    target = here / found.folder.name
    shutil.copytree(found.folder, target, copy_function=_link_file)
    manifest = paths.ray_train_manifest(found.folder).read_bytes()
    write_atomic(paths.ray_train_manifest(target), manifest)
    return target


def _link_file(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def reported_checkpoints(attempt: Path) -> list[str]:
    """Names of the checkpoints in Ray Train's own list of an attempt."""
    try:
        results = json.loads((attempt / SNAPSHOT).read_bytes())["checkpoint_results"]
        return [str(result["checkpoint_dir_name"]) for result in results]
    except (OSError, ValueError, KeyError, TypeError):
        return []
