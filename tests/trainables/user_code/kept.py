"""Checkpoints as earlier versions left them in the folders of Ray Train's runs."""

from __future__ import annotations

from pathlib import Path

from results.checkpoints.binding import binding_of
from results.checkpoints.commit import Manifest, sync_and_hash
from results.trial_paths import TrialPaths


def add_manifest(paths: TrialPaths, folder: Path, step: int) -> None:
    """Write the manifest of a checkpoint beside it."""
    manifest = Manifest(step=step, files=sync_and_hash(folder), binding=binding_of(paths))
    paths.ray_train_manifest(folder).write_text(manifest.model_dump_json())


def keep(paths: TrialPaths, attempt: int, step: int) -> Path:
    """Make a checkpoint whose file has its step."""
    folder = paths.ray_train_attempt(attempt) / f"checkpoint_{step:02d}"
    folder.mkdir(parents=True)
    (folder / "epoch").write_text(str(step))
    add_manifest(paths, folder, step)
    return folder
