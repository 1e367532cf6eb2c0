"""Pruning of old checkpoints, and quarantine of damaged ones."""

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from results.checkpoints.cleanup import prune, quarantine_damaged
from results.checkpoints.commit import create_staging, damaged_checkpoints, staging_folder
from results.trial_paths import TrialPaths
from tests.results.checkpoints.damage import DAMAGE, content, flip_a_bit, save, truncate


@pytest.mark.parametrize(("damage", "reason"), DAMAGE)
def test_quarantine_renames_damaged_checkpoints_after_the_newest_intact(
    paths: TrialPaths,
    caplog: pytest.LogCaptureFixture,
    damage: Callable[[Path], object],
    reason: str,
) -> None:
    for step in (1, 2, 3):
        save(paths, step, "old weights!")
    damage(paths.checkpoint(3))
    with caplog.at_level(logging.WARNING):
        quarantine_damaged(paths)
    flip_a_bit(paths.checkpoint(1))
    assert paths.checkpoint_steps() == [1, 2]
    assert (paths.checkpoints / "step_00000003.damaged").is_dir()
    assert "step_00000003.damaged" in caplog.text
    assert "renamed by a resume" in damaged_checkpoints(paths)[-1].reason
    assert content(paths) == "old weights!"
    quarantine_damaged(paths)  # checkpoints older than the newest intact one stay
    assert paths.checkpoint_steps() == [1, 2]


def test_prune_keeps_the_newest_intact_checkpoints(paths: TrialPaths) -> None:
    for step in (1, 2, 3, 4, 5):
        save(paths, step)
    flip_a_bit(paths.checkpoint(5))
    truncate(paths.checkpoint(3))
    prune(paths, keep=2)
    assert paths.checkpoint_steps() == [2, 3, 4, 5]  # 4 and 2 are intact
    prune(paths, keep=1)
    assert paths.checkpoint_steps() == [4, 5]
    save(paths, 6)
    prune(paths, keep=1)
    assert paths.checkpoint_steps() == [6]
    with pytest.raises(ValueError, match="at least one"):
        prune(paths, keep=0)


def test_prune_never_deletes_the_last_intact_checkpoint(paths: TrialPaths) -> None:
    save(paths, 1)
    for step in (2, 3):
        save(paths, step)
        flip_a_bit(paths.checkpoint(step))
    prune(paths, keep=1)
    assert content(paths) == "weights of 1"


def test_prune_removes_leftovers_of_dead_attempts(paths: TrialPaths) -> None:
    save(paths, 1, attempt=2)
    for attempt in (1, 2):
        create_staging(staging_folder(paths, 9, attempt))
    (paths.checkpoints / ".step_00000001.pruned").mkdir()
    (paths.checkpoints / "notes").mkdir()
    paths.attempt(2).mkdir(parents=True)
    prune(paths, keep=3)
    left = sorted(p.name for p in paths.checkpoints.iterdir())
    assert left == [".step_00000009.attempt_0002", "notes", "step_00000001"]
    paths.attempt(3).mkdir()  # a newer attempt has started: attempt 2 writes no more
    prune(paths, keep=3)
    assert not staging_folder(paths, 9, 2).exists()
