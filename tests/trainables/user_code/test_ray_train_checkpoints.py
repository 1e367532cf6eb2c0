"""A trial of an earlier version, whose checkpoints Ray Train kept, goes on from the newest one."""

from __future__ import annotations

from pathlib import Path

from results.checkpoints.commit import newest_intact
from results.trial_paths import TrialPaths
from tests.trainables.user_code.kept import keep
from trainables.user_code.ray_train.checkpoints import adopt_kept


def test_newest_intact_one_becomes_the_trials_own(tmp_path: Path) -> None:
    paths = TrialPaths(tmp_path)
    for attempt, step in ((1, 1), (1, 2), (2, 3)):
        newest = keep(paths, attempt, step)
    (newest / "epoch").write_text("torn")
    (paths.ray_train_attempt(2) / "without_manifest").mkdir()
    adopt_kept(paths)
    found = newest_intact(paths)
    assert found is not None
    assert (found.step, (found.folder / "epoch").read_text()) == (2, "2")
    keep(paths, 3, 9)
    adopt_kept(paths)
    assert paths.checkpoint_steps() == [2], "it has its own now"


def test_trial_without_any_is_left_alone(tmp_path: Path) -> None:
    adopt_kept(TrialPaths(tmp_path))
    assert TrialPaths(tmp_path).checkpoint_steps() == []
