"""What becomes of a trial's checkpoints that are not needed, not whole, or not finished."""

from __future__ import annotations

import logging
import os
import re
import shutil
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

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
from results.paths import TrialPaths
from results.storage.fault_injection import fault_point

log = logging.getLogger(__name__)

_HIDDEN = re.compile(r"\.step_\d+\.(?:attempt_(\d+)|replaced|pruned)")
_ATTEMPT = re.compile(r"attempt_(\d+)")


def quarantine_damaged(paths: TrialPaths) -> Checkpoint | None:
    """Put the damaged checkpoints that are newer than the newest whole one out of the way; gives
    that one.

    Their folders are renamed to `step_….damaged`: nobody takes them for checkpoints, and what went
    wrong can still be looked into.
    """
    for found in verify_all(paths):
        if isinstance(found, Checkpoint):
            return found
        aside = found.folder.with_name(f"{found.folder.name}{DAMAGED}")
        shutil.rmtree(aside, ignore_errors=True)
        os.rename(found.folder, aside)
        log.warning("checkpoint put aside as %s: %s", aside.name, found.reason)
    return None


def prune(paths: TrialPaths, keep: int, *, protected: Collection[int] = ()) -> None:
    """Delete all but the newest whole checkpoints, and what dead attempts left half written.

    Before anything is deleted, every byte of the newest one is read back and compared with its
    manifest: the last whole checkpoint is never deleted, whatever became of its successor.

    Args:
        paths: of the trial.
        keep: how many whole ones stay, at least 1. Damaged ones between them stay too.
        protected: steps that stay for another reason than being new.
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
    """Of the steps, newest first, those that come after so many whole ones."""
    whole = 0
    for step in steps:
        if whole >= keep:
            yield step
        elif _is_whole(paths.checkpoint(step), hashes=whole == 0):
            whole += 1
        else:
            log.warning("checkpoint of step %d is damaged: one more old one stays", step)


def remove_leftovers(paths: TrialPaths) -> None:
    """Delete the hidden folders that dead attempts left half written or half deleted."""
    for left in _leftovers(paths):
        shutil.rmtree(left, ignore_errors=True)


def copy_checkpoint(paths: TrialPaths, donor: Checkpoint) -> None:
    """Make another trial's checkpoint the newest of this one; its own at or beyond it are deleted.

    Files are linked where the file system can: a committed file never changes.

    Args:
        paths: of the trial that goes on from it; nothing of it may be running.
        donor: whole; its trial may go on meanwhile.
    """
    folder = staging_folder(paths, donor.step, 0)
    create_staging(folder)
    for name in donor.manifest.files:
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(donor.folder / name, target)
        except OSError:
            shutil.copyfile(donor.folder / name, target)
    for step in paths.checkpoint_steps():
        if step > donor.step:
            _discard(paths.checkpoint(step))
    commit(folder, paths.checkpoint(donor.step), step=donor.step)


def _is_whole(folder: Path, *, hashes: bool) -> bool:
    try:
        verify(folder, hashes=hashes)
    except CheckpointError:
        return False
    return True


def _discard(folder: Path) -> None:
    # renamed first: a deletion that dies half way leaves nothing that looks like a checkpoint
    gone = folder.with_name(f".{folder.name}.pruned")
    shutil.rmtree(gone, ignore_errors=True)
    os.rename(folder, gone)
    fault_point("checkpoint:discarding")
    shutil.rmtree(gone, ignore_errors=True)


def _leftovers(paths: TrialPaths) -> list[Path]:
    """Hidden folders that nobody can be writing: those of attempts before the newest one."""
    if not paths.checkpoints.is_dir():
        return []
    hidden = [(p, m) for p in paths.checkpoints.iterdir() if (m := _HIDDEN.fullmatch(p.name))]
    logs = paths.logs.iterdir() if paths.logs.is_dir() else iter(())
    claimed = [int(m.group(1)) for p in logs if (m := _ATTEMPT.fullmatch(p.name))]
    writing = [int(m.group(1)) for _, m in hidden if m.group(1)]
    newest = max([*claimed, *writing], default=0)
    return [p for p, m in hidden if m.group(1) is None or int(m.group(1)) < newest]
