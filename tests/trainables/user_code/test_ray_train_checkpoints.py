from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from results.checkpoints.retention import Retention
from results.records.reports import Report
from results.trial_paths import TrialPaths
from tests.reports import append_report
from tests.trainables.local import make_job
from trainables.launch.ray_train import checkpoint_snapshot
from trainables.user_code.ray_train.checkpoints import (
    SNAPSHOT,
    add_manifest,
    add_missing_manifests,
    prepare_attempt,
    prune,
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
        assert prepare_attempt(paths, 2, checkpoint_snapshot) == 2
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
    assert prepare_attempt(paths, 2, checkpoint_snapshot) == 2
    assert prepare_attempt(paths, 3, checkpoint_snapshot) == 2  # from what attempt 2 was given


@pytest.mark.filterwarnings("ignore:The `parse_obj` method is deprecated")  # Ray's own
def test_ray_train_resumes_from_the_newest_checkpoint(paths: TrialPaths) -> None:
    """Ray Train's checkpoint manager reads the snapshot."""
    from ray.train import CheckpointConfig
    from ray.train.v2._internal.execution.checkpoint.checkpoint_manager import CheckpointManager
    from ray.train.v2._internal.execution.storage import StorageContext

    reported(paths, 1, 2)
    reported(paths, 1, 3)
    assert prepare_attempt(paths, 2, checkpoint_snapshot) == 3
    run = StorageContext(str(paths.ray_train), paths.ray_train_attempt(2).name)
    manager = CheckpointManager(CheckpointConfig(num_to_keep=2), run)
    newest = manager.latest_checkpoint_result
    assert newest is not None
    assert newest.checkpoint is not None
    assert (Path(newest.checkpoint.path) / "state.pt").read_bytes() == b"state of 3"
    assert len(manager.best_checkpoint_results) == 2


def test_checkpoints_of_an_orphan_are_ignored(paths: TrialPaths) -> None:
    reported(paths, 1, 2)
    assert prepare_attempt(paths, 2, checkpoint_snapshot) == 2
    reported(paths, 1, 9, manifest=False)  # the orphan's controller has ended
    (paths.ray_train_attempt(1) / SNAPSHOT).write_text("{}")
    assert reported_checkpoints(paths.ray_train_attempt(2)) == ["checkpoint_2026-11-22_00-00-02"]
    assert prepare_attempt(paths, 3, checkpoint_snapshot) == 2


def test_fresh_start_has_no_snapshot(paths: TrialPaths) -> None:
    assert prepare_attempt(paths, 1, checkpoint_snapshot) is None
    assert not (paths.ray_train_attempt(1) / SNAPSHOT).exists()


def test_add_missing_manifests_completes_the_last_checkpoint(paths: TrialPaths) -> None:
    reported(paths, 1, 2)
    assert prepare_attempt(paths, 2, checkpoint_snapshot) == 2
    last, torn = reported(paths, 2, 5, manifest=False), reported(paths, 2, 6, manifest=False)
    snapshot = paths.ray_train_attempt(2) / SNAPSHOT
    state = json.loads(snapshot.read_text())
    state["checkpoint_results"].append({"checkpoint_dir_name": last.name, "metrics": {}})
    snapshot.write_text(json.dumps(state))
    add_missing_manifests(paths, 2, 5)
    assert paths.ray_train_manifest(last).exists()
    assert not paths.ray_train_manifest(torn).exists()
    assert prepare_attempt(paths, 3, checkpoint_snapshot) == 5


def test_old_checkpoints_are_deleted_with_their_manifests_except_the_best(tmp_path: Path) -> None:
    rules = Retention(newest=1, best=1, metric="loss", rungs=(2,), clock="epoch")
    job = make_job(tmp_path / "t0000", "train.py:loop", retention=rules)
    for step, loss in enumerate((5.0, 4.0, 1.0, 3.0, 2.0), 1):
        reported(job.paths, 1, step)
        metrics = {"loss": loss, "epoch": float(step)}
        append_report(job.paths, Report(step=step, metrics=metrics, attempt=1, time=0.0))
        prune(job)
    left = {path.name for path in job.paths.ray_train_attempt(1).iterdir()}
    kept = {f"checkpoint_2026-11-22_00-00-0{step}" for step in (2, 3, 5)}
    assert left == kept | {f"{name}.manifest.json" for name in kept}
    assert prepare_attempt(job.paths, 2, checkpoint_snapshot) == 5


def test_checkpoint_with_a_name_of_its_own_is_found(paths: TrialPaths) -> None:
    for step in (9, 10):
        folder = paths.ray_train_attempt(1) / f"epoch_{step}"
        folder.mkdir(parents=True)
        (folder / "state.pt").write_bytes(b"state")
        add_manifest(paths, folder, step)
    assert paths.newest_checkpoint() == folder
    assert prepare_attempt(paths, 2, checkpoint_snapshot) == 10
