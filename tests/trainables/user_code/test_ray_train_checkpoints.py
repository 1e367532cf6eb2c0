from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from results.paths import TrialPaths
from trainables.launch.ray_train import checkpoint_snapshot
from trainables.user_code.ray_train_checkpoints import (
    SNAPSHOT,
    add_manifest,
    add_missing_manifests,
    prepare_attempt,
    reported_checkpoints,
)


@pytest.fixture
def paths(tmp_path: Path) -> TrialPaths:
    return TrialPaths(tmp_path / "t0000")


def reported(paths: TrialPaths, attempt: int, step: int, *, manifest: bool = True) -> Path:
    """A checkpoint as Ray Train leaves it, with our manifest beside it."""
    folder = paths.ray_train_attempt(attempt) / f"checkpoint_2026-11-22_00-00-{step:02d}"
    (folder / "nested").mkdir(parents=True)
    (folder / "state.pt").write_bytes(b"state of %d" % step)
    (folder / "nested" / "manifest.json").write_text("the user's own")
    if manifest:
        add_manifest(paths, folder, step)
    return folder


DAMAGES: dict[str, Callable[[Path], object]] = {
    "flipped": lambda folder: (folder / "state.pt").write_bytes(b"state of x"),
    "truncated": lambda folder: os.truncate(folder / "state.pt", 2),
    "incomplete": lambda folder: (folder / "nested" / "manifest.json").unlink(),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_checkpoint_is_moved_aside_for_the_previous_one(
    paths: TrialPaths, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    reported(paths, 1, 1)
    reported(paths, 1, 2)
    newest = reported(paths, 1, 3)
    DAMAGES[damage](newest)
    with caplog.at_level(logging.WARNING):
        assert prepare_attempt(paths, 2, 2, checkpoint_snapshot) == 2
    assert (paths.ray_train / f"{newest.name}.damaged").is_dir()
    assert f"renamed to {newest.name}.damaged" in caplog.text
    here = paths.ray_train_attempt(2)
    assert reported_checkpoints(here) == [f"checkpoint_2026-11-22_00-00-0{s}" for s in (1, 2)]
    assert paths.newest_checkpoint() == here / "checkpoint_2026-11-22_00-00-02"
    assert paths.ray_train_attempts() == [here]


@pytest.mark.parametrize("torn", [True, False])
def test_checkpoint_without_a_manifest_is_ignored(paths: TrialPaths, torn: bool) -> None:
    reported(paths, 1, 2)
    newest = reported(paths, 1, 3, manifest=False)
    if torn:
        paths.ray_train_manifest(newest).write_text('{"step": 3, "fil')
    assert prepare_attempt(paths, 2, 1, checkpoint_snapshot) == 2
    assert prepare_attempt(paths, 3, 1, checkpoint_snapshot) == 2  # from what attempt 2 was given


@pytest.mark.filterwarnings("ignore:The `parse_obj` method is deprecated")  # Ray's own
def test_ray_train_resumes_from_the_newest_checkpoint(paths: TrialPaths) -> None:
    """Ray Train's checkpoint manager reads the snapshot."""
    from ray.train import CheckpointConfig
    from ray.train.v2._internal.execution.checkpoint.checkpoint_manager import CheckpointManager
    from ray.train.v2._internal.execution.storage import StorageContext

    reported(paths, 1, 2)
    reported(paths, 1, 3)
    assert prepare_attempt(paths, 2, 2, checkpoint_snapshot) == 3
    run = StorageContext(str(paths.ray_train), paths.ray_train_attempt(2).name)
    manager = CheckpointManager(CheckpointConfig(num_to_keep=2), run)
    newest = manager.latest_checkpoint_result
    assert newest is not None
    assert newest.checkpoint is not None
    assert (Path(newest.checkpoint.path) / "state.pt").read_bytes() == b"state of 3"
    assert len(manager.best_checkpoint_results) == 2


def test_checkpoints_of_an_orphan_are_ignored(paths: TrialPaths) -> None:
    reported(paths, 1, 2)
    assert prepare_attempt(paths, 2, 2, checkpoint_snapshot) == 2
    reported(paths, 1, 9, manifest=False)  # the orphan's controller has ended
    (paths.ray_train_attempt(1) / SNAPSHOT).write_text("{}")
    assert reported_checkpoints(paths.ray_train_attempt(2)) == ["checkpoint_2026-11-22_00-00-02"]
    assert prepare_attempt(paths, 3, 2, checkpoint_snapshot) == 2


def test_fresh_start_has_no_snapshot(paths: TrialPaths) -> None:
    assert prepare_attempt(paths, 1, 2, checkpoint_snapshot) is None
    assert not (paths.ray_train_attempt(1) / SNAPSHOT).exists()


def test_add_missing_manifests_completes_the_last_checkpoint(paths: TrialPaths) -> None:
    reported(paths, 1, 2)
    assert prepare_attempt(paths, 2, 2, checkpoint_snapshot) == 2
    last, torn = reported(paths, 2, 5, manifest=False), reported(paths, 2, 6, manifest=False)
    snapshot = paths.ray_train_attempt(2) / SNAPSHOT
    state = json.loads(snapshot.read_text())
    state["checkpoint_results"].append({"checkpoint_dir_name": last.name, "metrics": {}})
    snapshot.write_text(json.dumps(state))
    add_missing_manifests(paths, 2, 5)
    assert paths.ray_train_manifest(last).exists()
    assert not paths.ray_train_manifest(torn).exists()
    assert prepare_attempt(paths, 3, 1, checkpoint_snapshot) == 5
