"""Folders that earlier commits made resume, average, export and are restored.

`tests/data/sweep_0_1_0` is that folder: three finished trials, t0003 with a checkpoint of step 4,
two trials not yet proposed. `tests/data/sweep_0_1_0.json` has the curves, (step, accuracy, loss),
of the same sweep, run by version 0.1.0 without interruption.

`tests/data/made_by_77e88994` has a sweep whose driver was killed after its third trial, a backup of
it, and a pipeline between its first train stage and its second.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from results.records.trial import TrialState
from tests.ray.conftest import Tune

DATA = Path(__file__).parents[1] / "data"
SWEEP = "digits-v0-1"
PLACE = Path("/tmp/tune-77e88994")
"""Where the pipeline ran: its sweeps name files there."""


@pytest.mark.scripts
def test_folder_of_0_1_0_resumes_averages_and_exports(tune: Tune) -> None:
    paths = tune.paths(SWEEP)
    shutil.copytree(DATA / "sweep_0_1_0", paths.root)
    assert "3 of 6 trials finished; interrupted" in tune("show", SWEEP)

    assert "it is not signed" in tune("resume", SWEEP, code=2)
    assert "6 finished" in tune("resume", SWEEP, "--trust")
    records = {r.id: r for r in tune.trials(SWEEP)}
    assert len(records) == 6
    assert all(r.state.finished for r in records.values())
    assert records["t0003"].state is TrialState.COMPLETED
    assert [a.number for a in records["t0003"].attempts] == [1, 2]
    assert len(records["t0000"].attempts) == 1, "a finished trial is not run again"

    expected = json.loads((DATA / "sweep_0_1_0.json").read_text())
    for trial in ("t0000", "t0001", "t0002", "t0003"):  # later ones depend on the processor
        curve = [
            (r.step, r.metrics["accuracy"], r.metrics["loss"]) for r in tune.curve(SWEEP, trial)
        ]
        assert curve == [pytest.approx(point, rel=1e-3) for point in expected[trial]]

    # one that ran on this processor alone: the first steps of t0003 are those of another one
    assert "reports" in tune("reproduce", SWEEP, "t0005")
    tune("average", SWEEP, "--trials", "t0001,t0003", "--method", "uniform")
    exported = tune("export", SWEEP, "--trial", "t0003", "--to", "onnx")
    assert "onnx" in exported
    assert list(paths.exports.glob("t0003-*"))


@pytest.fixture
def earlier(address: str) -> Iterator[Tune]:
    shutil.rmtree(PLACE, ignore_errors=True)
    shutil.copytree(DATA / "made_by_77e88994" / "storage", PLACE / "sweeps")
    shutil.copytree(DATA / "made_by_77e88994" / "backups", PLACE / "backups")
    yield Tune(PLACE, address)
    shutil.rmtree(PLACE)


def test_folders_of_77e88994_are_resumed_restored_and_exported(earlier: Tune) -> None:
    sweep = "digits-77e88994"
    assert "5 finished" in earlier("resume", sweep, "--trust")
    resumed = earlier.values(sweep)
    assert [len(r.attempts) for r in earlier.trials(sweep)[:3]] == [1, 1, 1]
    assert "onnx" in earlier("export", sweep, "--to", "onnx")

    shutil.rmtree(earlier.paths(sweep).root)
    earlier("restore", f"backups/{sweep}")
    earlier("resume", sweep, "--trust")
    assert earlier.values(sweep) == resumed


def test_pipeline_of_77e88994_goes_on_after_its_first_train_stage(earlier: Tune) -> None:
    before = earlier.values("stories/stages/pretrain")
    out = earlier("resume", "stories", "--trust")
    assert "stage pretrain: complete" in out
    assert "stage sft: train" in out
    assert "5 of 5 stages complete" in earlier("show", "stories")
    assert earlier.values("stories/stages/pretrain") == before != {}
    models = {r.params["model_name_or_path"] for r in earlier.trials("stories/stages/sft")}
    assert len(models) == 2
