"""Remove checkpoints that are old, damaged or half written."""

from __future__ import annotations

import logging
import os
import re
import shutil
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from results.checkpoints.binding import binding_of
from results.checkpoints.commit import (
    DAMAGED,
    Checkpoint,
    CheckpointError,
    commit,
    create_staging,
    staging_folder,
    verify,
    verify_all,
)
from results.storage.fault_injection import fault_point
from results.storage.folder import link_or_copy
from results.trial_paths import TrialPaths

log = logging.getLogger(__name__)

_HIDDEN = re.compile(r"\.step_\d+\.(?:attempt_(\d+)|replaced|pruned)")


def quarantine_damaged(paths: TrialPaths) -> Checkpoint | None:
    """Rename damaged checkpoints that are newer than the newest intact one; returns that one.

    Their folders become `step_….damaged`: readers ignore them, and the damage can still be
    examined.
    """
    for found in verify_all(paths):
        if isinstance(found, Checkpoint):
            return found
        target = found.folder.with_name(f"{found.folder.name}{DAMAGED}")
        shutil.rmtree(target, ignore_errors=True)
        os.rename(found.folder, target)
        log.warning("checkpoint renamed to %s: %s", target.name, found.reason)
    return None


def prune(paths: TrialPaths, keep: int, *, protected: Collection[int] = ()) -> None:
    """Delete all but the newest intact checkpoints, and the half-written ones of dead attempts.

    Before anything is deleted, every byte of the newest checkpoint is read and compared with its
    manifest: the last intact checkpoint is never deleted, even if its successor is damaged.

    Args:
        keep: number of intact checkpoints to keep, at least 1. Damaged ones between them stay too.
        protected: steps to keep for other reasons than being new.
    """
    if keep < 1:
        raise ValueError(f"at least one checkpoint is kept, not {keep}")
    remove_leftovers(paths)
    steps = paths.checkpoint_steps()[::-1]
    if any(step not in protected for step in steps[keep:]):
        for step in _old(paths, steps, keep):
            if step not in protected:
                _discard(paths.checkpoint(step))
    fault_point("checkpoint:pruned")


def _old(paths: TrialPaths, steps: Sequence[int], keep: int) -> Iterator[int]:
    """Steps to delete: of `steps`, newest first, those after the first `keep` intact ones."""
    intact = 0
    for step in steps:
        if intact >= keep:
            yield step
        elif _is_intact(paths.checkpoint(step), hashes=intact == 0):
            intact += 1
        else:
            log.warning("checkpoint of step %d is damaged: one more old one stays", step)


def remove_leftovers(paths: TrialPaths) -> None:
    """Delete the hidden folders that dead attempts left half written or half deleted.

    Those are attempts before the newest one: no process writes to them any more.
    """
    found = paths.checkpoints.iterdir() if paths.checkpoints.is_dir() else iter(())
    hidden = [(p, m) for p in found if (m := _HIDDEN.fullmatch(p.name))]
    writing = [int(m[1]) for _, m in hidden if m[1]]
    newest = max([*paths.attempts(), *writing], default=0)
    for left, match in hidden:
        if match[1] is None or int(match[1]) < newest:
            shutil.rmtree(left, ignore_errors=True)


def copy_checkpoint(paths: TrialPaths, donor: Checkpoint) -> None:
    """Make another trial's checkpoint the newest one of this trial; delete its own later ones.

    Files are hard-linked if the file system supports it: a committed file never changes.

    Args:
        paths: of the trial that continues from the checkpoint. It must not be running.
        donor: an intact checkpoint; its trial may be running.
    """
    folder = staging_folder(paths, donor.step, 0)
    create_staging(folder)
    for name in donor.manifest.files:
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        link_or_copy(donor.folder / name, target)
    for step in paths.checkpoint_steps():
        if step > donor.step:
            _discard(paths.checkpoint(step))
    binding = binding_of(paths, f"{donor.folder.parents[1].name} at step {donor.step}")
    commit(folder, paths.checkpoint(donor.step), step=donor.step, binding=binding)


def _is_intact(folder: Path, *, hashes: bool) -> bool:
    try:
        verify(folder, hashes=hashes)
    except CheckpointError:
        return False
    return True


def _discard(folder: Path) -> None:
    # renamed first: an interrupted deletion leaves nothing that looks like a checkpoint
    target = folder.with_name(f".{folder.name}.pruned")
    shutil.rmtree(target, ignore_errors=True)
    os.rename(folder, target)
    fault_point("checkpoint:discarding")
    shutil.rmtree(target, ignore_errors=True)
