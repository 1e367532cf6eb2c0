"""Checkpoints on the disks of machines: copied behind the training, read where they are whole."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from pydantic import ValidationError

from results.paths import SweepPaths
from results.records.trial import TrialRecord, TrialState, read_reports, write_trial
from results.storage.fault_injection import VARIABLE
from results.trial_paths import TrialPaths
from search_spaces.spec.checkpoint import CheckpointSpec
from tests.trainables.local import ROOT, make_worker, newest_checkpoint, without_timing

STEPS = 5


def save(folder: Path) -> None:
    (folder / "model.safetensors").write_text(f"weights of {folder.name}")


def on_disk(disk: Path) -> list[str]:
    return sorted(f"{p.parent.name}/{p.name}" for p in disk.glob("*/rank_*/step_*"))


def test_newest_checkpoint_is_read_from_the_disk_where_it_is_whole(tmp_path: Path) -> None:
    trial, disk = tmp_path / "t", tmp_path / "disk"
    worker = make_worker(trial, checkpoint_every=1, local=str(disk))
    for step in (1, 2):
        worker.report(step=step, metrics={}, checkpoint=save)
    worker.close()
    assert TrialPaths(trial).checkpoint_steps() == [1, 2]
    (kept,) = disk.glob("*/rank_00000/*")
    assert kept.name == "step_00000002"
    found = make_worker(trial, attempt=2, local=str(disk)).resume()
    assert found is not None
    assert (found.folder / "model.safetensors").resolve() == (kept / "model.safetensors").resolve()
    (kept / "model.safetensors").write_text("damaged")
    found = make_worker(trial, attempt=3, local=str(disk)).resume()
    assert found is not None
    assert found.folder == TrialPaths(trial).checkpoint(2)


def test_training_goes_on_while_a_part_is_copied(tmp_path: Path) -> None:
    """The first report after a checkpoint waits for the disk, the next checkpoint for the copy."""
    worker = make_worker(tmp_path / "t", checkpoint_every=2, local=str(tmp_path / "disk"))
    copied, place = threading.Event(), worker.saver.place
    send = place.send

    def slow(step: int, shared: Path) -> None:
        copied.wait(60)
        send(step, shared)

    place.send = slow  # type: ignore[method-assign]
    worker.report(step=2, metrics={}, checkpoint=save)
    worker.report(step=3, metrics={}, checkpoint=save)
    assert TrialPaths(tmp_path / "t").checkpoint_steps() == []
    copied.set()
    worker.close()
    assert TrialPaths(tmp_path / "t").checkpoint_steps() == [2]


def test_disk_is_empty_after_the_end_of_a_trial(tmp_path: Path) -> None:
    worker = make_worker(tmp_path / "t", checkpoint_every=1, local=str(tmp_path / "disk"))
    worker.report(step=1, metrics={}, checkpoint=save)
    worker.report(step=2, metrics={}, checkpoint=save, final=True)
    worker.close()
    assert not list((tmp_path / "disk").iterdir())
    assert newest_checkpoint(tmp_path / "t").step == 2


@pytest.mark.parametrize(
    ("state", "stays"), [(TrialState.PAUSED, True), (TrialState.FAILED, False)]
)
def test_next_trial_deletes_what_a_failed_one_has_left(
    tmp_path: Path, state: TrialState, *, stays: bool
) -> None:
    disk, paths = tmp_path / "disk", SweepPaths(tmp_path).trial("t0000")
    worker = make_worker(paths.root, checkpoint_every=1, local=str(disk))
    worker.report(step=1, metrics={}, checkpoint=save)
    worker.close()
    record = TrialRecord(id="t0000", number=0, params={}, config={}, seed=0, created=0, state=state)
    write_trial(paths, record)
    other = make_worker(SweepPaths(tmp_path).trial("t0001").root, local=str(disk))
    other.close()
    assert on_disk(disk) == ["rank_00000/step_00000001"] * stays
    assert len([*disk.iterdir()]) == stays


def test_local_is_an_absolute_path() -> None:
    with pytest.raises(ValidationError, match="must be an absolute path"):
        CheckpointSpec.model_validate({"local": "scratch"})


def train(folder: Path, attempt: int, disk: str, *, crash: str = "") -> list[int]:
    """Two ranks, of which the second one may die; returns their exit codes."""
    command = [sys.executable, "-m", "tests.trainables.checkpointing.local_ranks"]
    ranks = [
        subprocess.Popen(
            [*command, str(rank), str(folder), str(attempt), disk],
            cwd=ROOT,
            env={**os.environ, **({VARIABLE: crash} if crash and rank else {})},
            stderr=subprocess.DEVNULL if crash else None,
        )
        for rank in (0, 1)
    ]
    return [rank.wait(timeout=120) for rank in ranks]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[int, dict[str, float]]:
    """The curve of a trial of which no rank dies."""
    folder = tmp_path_factory.mktemp("whole")
    assert train(folder, 1, "disk") == [0, 0]
    return curve(folder)


def curve(folder: Path) -> dict[int, dict[str, float]]:
    reports = read_reports(TrialPaths(folder / "trial"))
    return {r.step: without_timing(r.metrics) for r in reports}


@pytest.mark.slow
@pytest.mark.parametrize("point", ["checkpoint:local:3", "checkpoint:sent:3"])
def test_rank_that_dies_between_disk_and_sweep_folder(
    tmp_path: Path, whole: dict[int, dict[str, float]], point: str
) -> None:
    codes = train(tmp_path, 1, "disk", crash=point)
    assert codes[1] == -9
    assert codes[0] != 0
    assert newest_checkpoint(tmp_path / "trial").step == 2
    own = [on_disk(tmp_path / f"disk_{rank}") for rank in (0, 1)]
    assert "rank_00001/step_00000002" in own[1]
    assert not any("rank_00001" in name for name in own[0])
    assert train(tmp_path, 2, "disk") == [0, 0]
    assert curve(tmp_path) == whole
    assert newest_checkpoint(tmp_path / "trial").step == STEPS
