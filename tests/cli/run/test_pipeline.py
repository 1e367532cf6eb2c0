"""Commands on a whole pipeline, whose stages are programs: no Ray."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from results.models.stages import read_stages
from results.records.pipeline import PipelinePaths
from tests.cli.conftest import Tune
from tests.waiting import wait_for

ROOT = Path(__file__).parents[3]
FILE = """
name: words
stages:
  - {{name: a, kind: command, command: [sh, -c, "{wait}"]}}
  - {{name: b, kind: command, from: [], command: [sh, -c, "{wait}"]}}
  - {{name: c, kind: command, from: [a, b], command: ["true"]}}
"""
WAIT = "echo $$ > $0/pid; while test ! -e go; do sleep 0.05; done"
WAIT_S = 120.0


def waiting(tune: Tune) -> PipelinePaths:
    """A pipeline whose first two stages wait for the file `go`."""
    text = FILE.format(wait=WAIT).replace('done"]', 'done", "{output}"]')
    tune.write("words.yaml", text)
    return PipelinePaths(tune.cwd / "sweeps" / "words")


def start(tune: Tune, *command: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tuning", *command],
        cwd=tune.cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def both_run(paths: PipelinePaths) -> bool:
    return all((paths.stage(name) / "pid").exists() for name in ("a", "b"))


def done(paths: PipelinePaths) -> dict[str, bool]:
    return {name: record.done for name, record in read_stages(paths).stages.items()}


def gone(paths: PipelinePaths) -> bool:
    """Whether no program of the two stages runs."""
    pids = [int((paths.stage(name) / "pid").read_text()) for name in ("a", "b")]
    return not any(Path(f"/proc/{pid}").exists() for pid in pids)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["pause", "terminate", "kill"])
def test_two_stages_that_run_at_once_end_with_their_driver(tune: Tune, how: str) -> None:
    paths = waiting(tune)
    process = start(tune, "run", "words.yaml")
    wait_for(lambda: both_run(paths))
    if how == "pause":
        assert "pauses now; continue with: tune resume words" in tune("pause", "words").out
        assert "running" in tune("ls").out
    else:
        process.send_signal(signal.SIGTERM if how == "terminate" else signal.SIGKILL)
    printed, _ = process.communicate(timeout=WAIT_S)
    assert process.returncode == (-signal.SIGKILL if how == "kill" else 130), printed
    wait_for(lambda: gone(paths))
    assert done(paths) == {"a": False, "b": False}
    if how == "kill":
        return
    assert "the pipeline goes on with tune resume" in printed
    tune.write("go", "")
    assert "stage a: resumed" in tune("resume", "words").out
    assert done(paths) == {"a": True, "b": True, "c": True}


@pytest.mark.slow
def test_a_detached_pipeline_is_watched_and_stopped_before_its_next_stage(tune: Tune) -> None:
    paths = waiting(tune)
    begun, _ = start(tune, "run", "words.yaml", "--detach", "--until", "c").communicate()
    assert "runs pipeline words; its output goes to" in begun
    assert "watch with: tune show --watch words; end with: tune pause words" in begun
    wait_for(lambda: both_run(paths))
    assert "driven by process" in tune("show", "words").out
    assert "is a pipeline; no sweep of it has begun" in tune.refused("attach", "words")
    assert "driven by process" in tune.refused("resume", "words", "--detach")
    assert "and ends; run the other stages with: tune resume words" in tune("stop", "words").out
    wait_for(lambda: not [*(paths.root / "inbox").glob("*.json")])
    tune.write("go", "")
    wait_for(lambda: "stopped by tune stop" in paths.log.read_text())
    assert done(paths) == {"a": True, "b": True}
    assert "nothing to pause" in tune.refused("pause", "words")
    assert [*tune("ls").lines[1][:4]] == ["words", "interrupted", "2/3", "stages"]
    tune("resume", "words")
    assert done(paths)["c"]
    assert tune("show", "words", "--watch").out.endswith("3 of 3 stages complete\n")  # no sweeps


def test_mistakes_of_a_pipeline_are_one_line_each(tune: Tune) -> None:
    waiting(tune)
    shown = tune.refused("plan", "words.yaml", "--set", "d.command=[ls]")
    assert shown == "--set d.command=[ls]: no stage 'd' (valid: a, b, c)\n"
    assert "--begin d: no such stage (valid: a, b, c)" in tune.refused(
        "run", "words.yaml", "--begin", "d"
    )
    shipped = ROOT / "search_spaces" / "pipelines" / "stories.yaml"
    shown = tune.refused("plan", shipped, "--set", "sft.space.learning_rate.loguniform=[1, 0]")
    assert shown.count("\n") == 1
    assert "(stage sft)" in shown
    shown = tune.refused("plan", shipped, "--set", "pretrain.choose_by=sft.loss")
    assert "choose_by: sft does not report 'loss'" in shown
