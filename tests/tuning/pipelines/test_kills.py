"""kill -9 of the driver in a stage of every kind: the pipeline ends as one that was not killed."""

from __future__ import annotations

import signal
from pathlib import Path

import psutil
import pytest

from results.models.stages import read_stages
from results.records.pipeline import PipelinePaths
from results.records.trial import read_reports, read_trials
from tests.threads import one_thread
from tests.tuning.pipelines import small
from tests.waiting import wait_for
from tuning.pipelines.run import run_pipeline
from tuning.pipelines.selection import StageSelection

WAIT_S = 120.0
CRASH_AT = {
    "data": "",  # its filter ends the process in the middle
    "pretrain": "reports.jsonl:durable:3",  # in the second trial
    "confirmed": "reports.jsonl:durable:4",  # two at most are of the second trial
    "averaged": "stages.json:written:5",  # done, and not recorded
    "scores": "stages.json:written:5",
    "later": "stages.json:written:5",
    "sft": "study.journal:written:2",
    "last": "stages.json:durable:4",  # just begun
    "exported": "stages.json:written:5",
    "counted": "",  # while its program runs
}
"""Each process goes on with the stage in which the one before was killed."""


def kill_in(stage: str, file: Path, paths: PipelinePaths) -> None:
    """Go on until a stage in a process, which is killed in that stage."""
    marker = file.parent / ("kill_in_data" if stage == "data" else "wait")
    marker.touch()
    process = small.started(file, stage, CRASH_AT[stage])
    if stage == "counted":
        pid = paths.stage(stage) / "pid"
        wait_for(lambda: pid.exists() and bool(pid.read_text()))
        program = psutil.Process(int(pid.read_text()))
        process.kill()
        wait_for(lambda: not program.is_running() or program.status() == psutil.STATUS_ZOMBIE)
    process.join(WAIT_S)
    assert process.exitcode == -signal.SIGKILL
    marker.unlink(missing_ok=True)


def losses(paths: PipelinePaths, stage: str) -> dict[str, list[tuple[int, float]]]:
    sweep = paths.sweep(stage)
    return {
        record.id: [
            (report.step, report.metrics["eval_loss"])
            for report in read_reports(sweep.trial(record.id), record.end_step)
        ]
        for record in read_trials(sweep)
    }


def content(paths: PipelinePaths) -> dict[str, bytes]:
    """What the stages put out, by file."""
    sweep = paths.sweep("pretrain")
    files = [
        *paths.stage("data").rglob("*.json*"),
        *sweep.soup("averaged").glob("*.safetensors"),
        *paths.sweep("sft").soup("last").glob("*.safetensors"),
        *paths.sweep("sft").exports.glob("t*/model.safetensors"),  # tests of `made` export its soup
        paths.stage("scores") / "scores.json",
        paths.stage("counted") / "lines",
        sweep.confirmation,
    ]
    return {str(file.relative_to(paths.root)): file.read_bytes() for file in files}


@pytest.mark.slow
def test_a_pipeline_that_is_killed_in_every_stage_ends_as_one_that_was_not(
    made: PipelinePaths, tmp_path: Path
) -> None:
    file = small.write(tmp_path / "killed", small.UNTRACKED)
    paths = PipelinePaths(file.parent / "sweeps" / "small")
    for number, stage in enumerate(small.STAGES):
        kill_in(stage, file, paths)
        records = read_stages(paths).stages
        assert [r.done for r in records.values()] == [True] * number + [False], stage
    small.run(file)
    found, whole = read_stages(paths).stages, read_stages(made).stages
    assert {n: (r.key, r.done) for n, r in found.items()} == {
        n: (r.key, True) for n, r in whole.items()
    }
    for stage in ("pretrain", "sft", "later"):
        assert losses(paths, stage) == losses(made, stage), stage
    assert content(paths) == content(made)
    assert len(content(made)) >= 10
    change_one_stage(file, paths)
    remove_confirmation(file, paths)


def change_one_stage(file: Path, paths: PipelinePaths) -> None:
    """A change of a stage runs it and what depends on it; without the change, nothing runs."""
    before, override = read_stages(paths).stages, "sft.space.learning_rate={loguniform: [1e-4, 1]}"
    for overrides, expected in (([override], ["sft", "last", "exported"]), ([], [])):
        said: list[str] = []
        with one_thread():
            run_pipeline(
                file,
                storage=str(paths.root.parent),
                overrides=overrides,
                run_session=small.drive,
                notify=said.append,
            )
        begun = [line.split()[1] for line in said if line.startswith("stage ")]
        done = [line.split()[1] for line in said if line.endswith(": complete")]
        assert [name.rstrip(":") for name in begun if name not in done] == expected
    assert read_stages(paths).stages == before


def remove_confirmation(file: Path, paths: PipelinePaths) -> None:
    """Without its stage, a confirmation no longer decides the winner; with it again, it is made."""
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join(line for line in lines if "kind: confirm" not in line))
    run_pipeline(file, storage=str(paths.root.parent), selection=StageSelection(["pretrain"]))
    assert not paths.sweep("pretrain").confirmation.exists()
    file.write_text("".join(lines))
    run_pipeline(file, storage=str(paths.root.parent), selection=StageSelection(["confirmed"]))
    assert paths.sweep("pretrain").confirmation.exists()


@pytest.mark.slow
def test_what_a_change_does_not_reach_is_not_run_again(made: PipelinePaths, tmp_path: Path) -> None:
    before = read_stages(made).stages
    said: list[str] = []
    small.run(made.root.parents[1] / "small.yaml", StageSelection(), notify=said.append)
    assert sorted(said) == sorted(f"stage {name}: complete" for name in small.STAGES)
    assert read_stages(made).stages == before
