"""The model of a sharded checkpoint in one file, for everything that reads models."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from results.checkpoints.commit import (
    MANIFEST,
    Checkpoint,
    CheckpointError,
    staged,
    verify,
    verify_all,
)
from results.checkpoints.shards import is_sharded, open_tensors, write_whole
from results.trial_paths import TrialPaths

_LEFT_OUT = ("rng_", "progress.", "communication_", MANIFEST)
"""Begins of the names of files that only a training run reads."""


def whole_models(paths: TrialPaths) -> Iterator[Checkpoint | CheckpointError]:
    """The checkpoints of a trial as folders with `model.safetensors`, verified, newest first.

    The model of a sharded one is written to the trial's `models/` when it is asked for, tensor by
    tensor.
    """
    for found in verify_all(paths):
        if isinstance(found, Checkpoint) and is_sharded(found.folder):
            yield _whole(paths, found)
        else:
            yield found


def model_files(folder: Path) -> Iterator[Path]:
    """The files of a checkpoint, by name, without those that only a training run reads."""
    for file in sorted(folder.iterdir()):
        if file.is_file() and not file.name.startswith(_LEFT_OUT):
            yield file


def _whole(paths: TrialPaths, found: Checkpoint) -> Checkpoint:
    target = paths.model(found.step)
    with staged(target) as folder:
        for file in model_files(found.folder):
            shutil.copyfile(file, folder / file.name)
        write_whole(open_tensors(found.folder), folder / "model.safetensors")
    return Checkpoint(found.step, target, verify(target, hashes=False))
