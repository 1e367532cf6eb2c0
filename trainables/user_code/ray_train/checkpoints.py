"""Checkpoints that Ray Train kept for trials of earlier versions: a manifest is beside each."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from results.checkpoints.binding import binding_of
from results.checkpoints.commit import CheckpointError, Manifest, commit, require_own, verify
from results.storage.folder import link_or_copy
from results.trial_paths import TrialPaths

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class KeptCheckpoint:
    """A checkpoint that Ray Train keeps and that has a manifest."""

    step: int
    folder: Path


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


def adopt_kept(paths: TrialPaths) -> None:
    """Make the newest intact one the trial's own, unless the trial has checkpoints of its own."""
    if paths.checkpoint_steps():
        return
    for found in newest_first(paths, paths.ray_train_attempts()):
        try:
            verify_kept(paths, found)
        except CheckpointError as e:
            log.warning("checkpoint %s is not used: %s", found.folder.name, e.reason)
            continue
        staging = paths.ray_train / "adopted"
        shutil.rmtree(staging, ignore_errors=True)
        shutil.copytree(found.folder, staging, copy_function=link_or_copy)
        commit(staging, paths.checkpoint(found.step), step=found.step, binding=binding_of(paths))
        return
