"""Checkpoints of a loop that was written for Ray Train, made as safe as ours.

Ray Train keeps them without hashes, and hands a torn one to its workers. So each that it reports
gets a manifest of ours beside it; each attempt has a folder of its own, so that a stale one can do
no harm; and an attempt begins with those that are whole, as Ray Train looks for them.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from results.checkpoints.commit import DAMAGED, CheckpointError, Manifest, sync_and_hash, verify
from results.paths import TrialPaths
from results.storage.atomic import write_atomic

log = logging.getLogger(__name__)

SNAPSHOT = "checkpoint_manager_snapshot.json"
_lock = threading.Lock()


@dataclass(frozen=True)
class Sealed:
    """A checkpoint that Ray Train keeps, and that has a manifest."""

    step: int
    folder: Path


def seal_checkpoint(paths: TrialPaths, folder: Path, step: int) -> None:
    """Make a checkpoint durable and write its manifest; one that Ray Train deletes meanwhile, or
    that has a manifest, is passed over.
    """
    with _lock:
        target = paths.ray_train_manifest(folder)
        if target.exists():
            return
        try:
            manifest = Manifest(step=step, files=sync_and_hash(folder))
        except FileNotFoundError:
            return
        write_atomic(target, manifest.model_dump_json(indent=1).encode())


def seal_reported(paths: TrialPaths, attempt: int, step: int) -> None:
    """At the end of an attempt: the manifests that Ray Train's last words left no time for."""
    for name in _reported(paths.ray_train_attempt(attempt)):
        folder = paths.ray_train_attempt(attempt) / name
        if folder.is_dir():
            seal_checkpoint(paths, folder, step)


def take_up(
    paths: TrialPaths, attempt: int, keep: int, snapshot: Callable[[list[str]], str]
) -> int | None:
    """Prepare the folder of an attempt: the newest whole checkpoints of those before are linked
    into it. Damaged ones on the way are put aside; what else earlier attempts left is deleted.

    Args:
        paths: of the trial.
        attempt: that is to begin; its folder is new.
        keep: how many are linked at most.
        snapshot: makes Ray Train's list of checkpoints from their names, the newest last.

    Returns:
        The step from which the loop goes on, or None for a fresh start.
    """
    here = paths.ray_train_attempt(attempt)
    shutil.rmtree(here, ignore_errors=True)
    whole: list[Sealed] = []
    for found in _newest_first(paths):
        if len(whole) < keep and _is_whole(paths, found):
            whole.append(found)
    linked = [_link(paths, found, here) for found in reversed(whole)]
    if linked:
        write_atomic(here / SNAPSHOT, snapshot([folder.name for folder in linked]).encode())
    for old in paths.ray_train_attempts():
        if old != here:
            shutil.rmtree(old, ignore_errors=True)
    return whole[0].step if whole else None


def _newest_first(paths: TrialPaths) -> Iterator[Sealed]:
    found = []
    for attempt in paths.ray_train_attempts():
        for folder in attempt.glob("checkpoint_*/"):
            try:
                text = paths.ray_train_manifest(folder).read_bytes()
                found.append(Sealed(Manifest.model_validate_json(text).step, folder))
            except FileNotFoundError:
                log.warning("%s has no manifest and is passed over", folder)
            except (OSError, ValueError):
                found.append(Sealed(-1, folder))
    return iter(sorted(found, key=lambda s: (s.step, s.folder.parent.name), reverse=True))


def _is_whole(paths: TrialPaths, found: Sealed) -> bool:
    """Whether every byte is as it was; if not, the checkpoint is put aside."""
    try:
        verify(found.folder, manifest=paths.ray_train_manifest(found.folder))
    except CheckpointError as e:
        aside = paths.ray_train / f"{found.folder.name}{DAMAGED}"
        shutil.rmtree(aside, ignore_errors=True)
        os.rename(found.folder, aside)
        log.warning("checkpoint put aside as %s: %s", aside.name, e.reason)
        return False
    return True


def _link(paths: TrialPaths, found: Sealed, here: Path) -> Path:
    """The same checkpoint in the folder of another attempt, its manifest last."""
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


def _reported(attempt: Path) -> list[str]:
    """Names of the checkpoints that Ray Train's own list has."""
    try:
        results = json.loads((attempt / SNAPSHOT).read_bytes())["checkpoint_results"]
        return [str(result["checkpoint_dir_name"]) for result in results]
    except (OSError, ValueError, KeyError, TypeError):
        return []
