"""The stages of a pipeline run once; a change runs what depends on it. Programs only: no Ray."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from results.models.stages import read_stages, write_stages
from results.records.pipeline import PipelinePaths
from results.storage.fencing import OwnershipLostError
from results.sweep_folder.lock import acquire_lock
from search_spaces.errors import UserError
from search_spaces.pipeline.loading import load_pipeline
from tests.tuning.pipelines import small
from tuning.pipelines.base import StageContext, StageOutput, StageStopped
from tuning.pipelines.folder import find_pipeline
from tuning.pipelines.run import resume_pipeline, run_pipeline
from tuning.pipelines.selection import StageSelection
from tuning.pipelines.table import StageTable

FILE = """
name: words
stages:
  - {{name: a, kind: command, command: [sh, -c, "echo a >> {log}; echo one > x", sh]}}
  - {{name: b, kind: command, from: [], command: [sh, -c, "echo b >> {log}"]}}
  - name: c
    kind: command
    command: [sh, -c, 'echo c >> {log}; test ! -e {stop} && cp "$0" "$1"', "{{a}}/log.txt",
              "{{output}}/copy"]
  - {{name: d, kind: command, command: [sh, -c, "echo d >> {log}"]}}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "words.yaml"
    made.write_text(FILE.format(log=tmp_path / "log", stop=tmp_path / "stop"))
    return made


def ran(file: Path) -> str:
    """The stages that have run since the last call, by name: a and b run at once."""
    log = file.parent / "log"
    text = log.read_text() if log.exists() else ""
    log.unlink(missing_ok=True)
    return "".join(sorted(text.split()))


def run(file: Path, *overrides: str, selection: StageSelection = StageSelection()) -> PipelinePaths:  # noqa: B008
    storage = str(file.parent / "sweeps")
    return run_pipeline(file, storage=storage, overrides=overrides, selection=selection)


def test_a_stage_runs_once_and_a_change_runs_what_depends_on_it(file: Path) -> None:
    paths = run(file)
    assert ran(file) == "abcd"
    assert (paths.stage("c") / "copy").exists()
    run(file)
    assert ran(file) == ""
    text = file.read_text()
    file.write_text(text.replace("echo one", "echo two"))
    run(file)
    assert ran(file) == "acd"
    file.write_text(text)  # as it was: what was made then is taken back
    run(file)
    assert ran(file) == ""
    run(file, "d.command=[sh, -c, 'true']")
    assert ran(file) == ""
    assert read_stages(paths).stages["d"].done


def test_a_stage_that_fails_is_run_again_and_those_before_it_are_not(file: Path) -> None:
    (file.parent / "stop").touch()
    with pytest.raises(
        StageStopped, match=r"stage c: the program exited with code 1; log .*log\.txt"
    ) as stopped:
        run(file)
    assert stopped.value.exit_code == 1
    assert ran(file) == "abc"
    paths = find_pipeline("words", str(file.parent / "sweeps"))
    assert paths is not None
    file.unlink()  # resume reads the frozen file
    (paths.root.parents[1] / "stop").unlink()
    resume_pipeline(paths)
    assert (paths.root.parents[1] / "log").read_text() == "c\nd\n"


def test_resume_keeps_stages_that_other_code_began_and_run_does_not(file: Path) -> None:
    paths, lines = run(file, selection=StageSelection(until="b")), list[str]()
    assert ran(file) == "ab"
    for proceed, expected in (
        (lambda: resume_pipeline(paths, notify=lines.append), "cd"),
        (lambda: run(file), "abcd"),
    ):
        records = read_stages(paths)
        stages = {n: replace(r, key="0" * 64) for n, r in records.stages.items()}
        write_stages(paths, replace(records, stages=stages))
        proceed()
        assert ran(file) == expected
    assert "kept as they have begun: a, b" in lines[0]


def test_chosen_stages_run_and_need_those_before_them(file: Path) -> None:
    with pytest.raises(UserError, match="stage c needs a, which is not complete"):
        run(file, selection=StageSelection(begin="c"))
    run(file, selection=StageSelection(until="b"))
    assert ran(file) == "ab"
    run(file, selection=StageSelection(["d", "c"]))
    assert ran(file) == "cd"
    with pytest.raises(UserError, match=r"--until e: no such stage \(valid: a, b, c, d\)"):
        run(file, selection=StageSelection(until="e"))


def test_what_was_removed_is_made_again_and_what_nobody_knows_is_kept(file: Path) -> None:
    paths = run(file)
    ran(file)
    shutil.rmtree(paths.stage("c"))
    run(file)
    assert ran(file) == "c"
    paths.records.unlink()
    run(file)
    assert ran(file) == "abcd"
    assert len(list(paths.stages.root.glob("a@*"))) == 1


def test_the_programs_of_a_strangers_pipeline_are_not_run(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = run(file)
    ran(file)
    shutil.rmtree(paths.stage("d"))
    monkeypatch.setenv("TUNE_KEY", "the key of another user, who received the folder")
    with pytest.raises(UserError, match="another user started this pipeline"):
        resume_pipeline(paths)
    assert ran(file) == ""
    resume_pipeline(paths, trust=True)
    assert ran(file) == "d"


def test_damaged_records_are_not_guessed(file: Path) -> None:
    paths = run(file)
    paths.records.write_bytes(paths.records.read_bytes().replace(b"true", b"null", 1))
    with pytest.raises(UserError, match=r"stages\.json: not readable \(does not match"):
        run(file)


def test_an_average_that_was_replaced_or_removed_is_made_again(tmp_path: Path) -> None:
    paths, file = PipelinePaths(tmp_path / "sweeps" / "small"), small.write(tmp_path / "f")
    soup = paths.sweep("pretrain").soup("averaged")
    soup.mkdir(parents=True)
    for method in ("uniform", "greedy", "uniform"):
        pipeline = load_pipeline(file, [f"averaged.method={method}"])
        table = StageTable(StageContext(pipeline, paths))
        assert not table.is_done("averaged")
        table.begin("averaged")
        table.end("averaged", 1.0, StageOutput({}))
        assert table.is_done("averaged")
    soup.rmdir()
    assert not table.is_done("averaged")


def test_a_pipeline_that_lost_its_folder_writes_no_records(file: Path) -> None:
    paths = run(file)
    with acquire_lock(paths.lock) as fence:
        table = StageTable(StageContext(load_pipeline(file), paths, fence=fence))
        before = paths.records.read_bytes()
        paths.lock.unlink()  # the folder was replaced, or another machine took it over
        with pytest.raises(OwnershipLostError):
            table.begin("a")
    assert paths.records.read_bytes() == before
