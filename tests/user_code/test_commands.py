"""Programs in several languages are trained, stopped and resumed as trials."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from results.checkpoints.commit import newest_intact
from results.checkpoints.retention import Retention
from results.records.failures import Cause, Remedy, classify
from results.trial_paths import TrialPaths
from search_spaces.errors import UserError
from search_spaces.spec.command import ReportFromSpec, name_of
from tests.trainables.local import ROOT, RecordingChannel
from tests.user_code.conftest import PROGRAMS, is_running, pids_in, python, run_command
from tests.waiting import wait_for
from trainables.job import Answer
from trainables.launch.run_trial import output_to
from trainables.registry import resolve
from trainables.user_code.command.program import CommandError
from tuning.controller.preflight.trainables import config_problems


@dataclass(frozen=True)
class Case:
    """A program that can resume."""

    command: Sequence[str]
    config: dict[str, Any]
    steps: tuple[int, ...]
    options: dict[str, Any] = field(default_factory=dict)


CASES = {
    "argparse": Case(
        [sys.executable, str(PROGRAMS / "argparse_main.py"), "{args}"],
        {"learning_rate": 0.1, "epochs": 4},
        (1, 2, 3, 4),
    ),
    "shell": Case(
        [str(PROGRAMS / "train.sh"), "{epochs}"], {"epochs": 4, "rate": 0.3}, (1, 2, 3, 4)
    ),
    "torchrun": Case(
        [sys.executable, "-m", "torch.distributed.run", str(PROGRAMS / "ddp.py"), "--lr", "{lr}"],
        {"lr": 0.1},
        (1, 2, 3, 4),
        {"workers": 2, "stop_grace_s": 1.0},
    ),
}


@pytest.fixture(params=["argparse", "shell", pytest.param("torchrun", marks=pytest.mark.slow)])
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]


def test_stopped_program_resumes_with_an_equal_curve(case: Case, tmp_path: Path) -> None:
    whole = run_command(tmp_path / "whole", case.command, case.config, **case.options)
    assert tuple(whole.curve) == case.steps
    stop = RecordingChannel({2: Answer.STOP})
    cut = run_command(tmp_path / "cut", case.command, case.config, channel=stop, **case.options)
    assert tuple(cut.curve) == case.steps[:2]
    found = newest_intact(TrialPaths(tmp_path / "cut"))
    assert found is not None
    assert found.step >= 2  # the shell script does not wait for answers
    rest = run_command(tmp_path / "cut", case.command, case.config, attempt=2, **case.options)
    assert tuple(rest.curve) == tuple(s for s in case.steps if s > found.step)
    assert rest.curve == {step: whole.curve[step] for step in rest.curve}


def test_damaged_checkpoint_is_passed_over(tmp_path: Path) -> None:
    case = CASES["argparse"]
    run_command(tmp_path / "t", case.command, case.config)
    paths = TrialPaths(tmp_path / "t")
    (paths.checkpoint(4) / "state.json").write_text("[9, 9]")
    again = run_command(tmp_path / "t", case.command, case.config, attempt=2)
    assert list(again.curve) == [4]


def test_parameters_reach_the_program(tmp_path: Path) -> None:
    code = (
        "import json, os, sys\n"
        "names = ['TUNE_PARAM_OPTIMIZER_LR', 'TUNE_SEED', 'TUNE_WORKERS', 'TUNE_ATTEMPT']\n"
        "params = json.load(open(os.environ['TUNE_PARAMS_FILE']))\n"
        "json.dump([sys.argv[1:], [os.environ[n] for n in names], params, os.getcwd(),\n"
        "  [n for n in ('RANK', 'WORLD_SIZE', 'MASTER_PORT') if n in os.environ]],\n"
        "  open('seen.json', 'w'))\n"
        "from tune_report import report\n"
        "report({'loss': 1})\n"
    )
    config = {"optimizer": {"lr": 0.5}, "flag": True, "name": "a b"}
    command = [*python(code), "--lr={optimizer.lr}", "{args}", "{{name}}", "{print $1}", "{seed}"]
    os.environ["RANK"] = "0"
    try:
        run_command(tmp_path / "t", command, config, seed=7, workers=3)
    finally:
        del os.environ["RANK"]
    work = TrialPaths(tmp_path / "t").work
    argv, env, params, folder, worker = json.loads((work / "seen.json").read_text())
    args = ["--optimizer.lr", "0.5", "--flag", "true", "--name", "a b"]
    assert argv == ["--lr=0.5", *args, "{name}", "{print $1}", "7"]
    assert env == ["0.5", "7", "3", "1"]
    assert params == config
    assert folder == str(work)
    assert worker == []


FORKS = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
for session in (True, False):
    child = "import os, time; open(str(os.getpid()), 'w'); time.sleep(600)"
    subprocess.Popen([sys.executable, "-c", child], start_new_session=session)
open(str(os.getpid()), "w")
from tune_report import report
while len([n for n in os.listdir() if n.isdigit()]) < 3:
    time.sleep(0.01)
report(step=1, loss=1)
time.sleep(600)
"""
"""Ignores SIGTERM; one of its processes has a session of its own."""


def test_stopped_program_leaves_no_process(tmp_path: Path) -> None:
    stop = RecordingChannel({1: Answer.STOP})
    run_command(tmp_path / "t", python(FORKS), channel=stop, stop_grace_s=0.2)
    pids = pids_in(TrialPaths(tmp_path / "t").work)
    assert len(pids) == 3
    assert not any(map(is_running, pids))


def hosted(folder: Path, command: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
    """A process that runs a command as a trial."""
    code = (
        "import sys, json; from pathlib import Path\n"
        "from tests.trainables.local import run_trial\n"
        "run_trial(Path(sys.argv[1]), sys.argv[2], {}, **json.loads(sys.argv[3]))\n"
    )
    arguments = [str(folder), name_of(command), json.dumps(options)]
    return subprocess.Popen([sys.executable, "-c", code, *arguments], cwd=ROOT)


def test_killed_worker_leaves_no_process(tmp_path: Path) -> None:
    paths = TrialPaths(tmp_path / "t")
    with hosted(paths.root, python(FORKS)) as worker:
        wait_for(lambda: paths.reports.exists())
        worker.kill()
    pids = pids_in(paths.work)
    assert len(pids) == 3
    wait_for(lambda: not any(map(is_running, pids)))


def test_silent_program_is_ended_after_the_hang_timeout(tmp_path: Path) -> None:
    paths = TrialPaths(tmp_path / "t")
    code = "import os, time; open(str(os.getpid()), 'w'); time.sleep(600)"
    with hosted(paths.root, python(code), hang_timeout_s=1) as worker:
        assert worker.wait(60) != 0
    pids = pids_in(paths.work)
    assert len(pids) == 1
    wait_for(lambda: not any(map(is_running, pids)))


def test_checkpoint_of_a_program_that_got_sigterm_is_saved(tmp_path: Path) -> None:
    code = """
import os, signal, sys, time
from tune_report import report
def leave(*_):
    os.mkdir("last")
    open("last/state", "w").write("saved")
    import json
    print(json.dumps({"checkpoint": "last"}), file=open(os.environ["TUNE_REPORTS"], "a"))
    sys.exit(0)
signal.signal(signal.SIGTERM, leave)
report(step=5, loss=1)
time.sleep(600)
"""
    pause = RecordingChannel({5: Answer.PAUSE})
    run_command(tmp_path / "t", python(code), channel=pause)
    found = newest_intact(TrialPaths(tmp_path / "t"))
    assert found is not None
    assert found.step == 5
    assert (found.folder / "state").read_text() == "saved"


def test_complete_program_may_end_by_itself(tmp_path: Path) -> None:
    code = "from tune_report import report\nreport(step=2, loss=1)\nopen('final', 'w')"
    stop = RecordingChannel({2: Answer.STOP})
    run_command(tmp_path / "t", python(code), channel=stop, max_t=2)
    assert (TrialPaths(tmp_path / "t").work / "final").exists()


WRONG: dict[str, tuple[str, type[Exception], str]] = {
    "code": ("import sys; sys.exit('no data')", CommandError, "exited with code 1: no data$"),
    "traceback": ("import no_such", CommandError, "code 1: ModuleNotFoundError: No module named"),
    "silent": ("pass", UserError, r"ended without a report: it wrote nothing to the file \$TUNE"),
    "garbage": (
        "import os; open(os.environ['TUNE_REPORTS'], 'w').write('loss 1\\n')",
        UserError,
        r"^\$TUNE_REPORTS: line 1 is not a JSON object: 'loss 1'$",
    ),
    "number": ("from tune_report import report; report(loss='low')", UserError, "not a number"),
    "frame": (
        "import sys; print('│ \\x1b[31mno lr\\x1b[0m │\\n╰───╯', file=sys.stderr); sys.exit(2)",
        CommandError,
        "exited with code 2: no lr$",
    ),
    "usage": (
        "import argparse; argparse.ArgumentParser('t').parse_args(['-x'])",
        CommandError,
        "exited with code 2: t: error: unrecognized arguments: -x$",
    ),
    "step": (
        "import os; open(os.environ['TUNE_REPORTS'], 'w').write('{\"step\": 1.5, \"loss\": 1}')",
        UserError,
        "step that is not a whole number: 1.5",
    ),
    "checkpoint": (
        "from tune_report import report; report(loss=1, checkpoint='none')",
        UserError,
        "checkpoint that is no folder",
    ),
    "everything": (
        "from tune_report import report; report(loss=1, checkpoint='.')",
        UserError,
        "checkpoint that is no folder",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_mistake_of_a_program_is_one_line(name: str, tmp_path: Path) -> None:
    code, error, message = WRONG[name]
    with pytest.raises(error, match=message) as caught:
        run_command(tmp_path / "t", python(code), retention=Retention(metric="loss"))
    assert "\n" not in str(caught.value)


def test_program_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cannot start \./none: No such file"):
        run_command(tmp_path / "t", ["./none"])
    with pytest.raises(UserError, match=r"\{lr\} has no value"):
        run_command(tmp_path / "t", ["sh", "{lr}"])
    with pytest.raises(UserError, match=r"nothing matched report_from\.stdout\.loss"):
        run_command(tmp_path / "t", ["true"], report_from=ReportFromSpec(stdout={"loss": "(x)"}))


def test_programs_of_this_python_need_no_activation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripts = sysconfig.get_path("scripts")
    others = [p for p in os.environ["PATH"].split(os.pathsep) if p != scripts]
    monkeypatch.setenv("PATH", os.pathsep.join(others))
    assert config_problems(resolve(name_of(["torchrun", "x.py"])), {}, files=True) == []
    code = "import shutil; print('found', int(shutil.which('torchrun') is not None))"
    report_from = ReportFromSpec(stdout={"loss": r"found (1)"})
    run_command(tmp_path / "t", ["python3", "-c", code], report_from=report_from)


def test_killed_program_is_tried_again(tmp_path: Path) -> None:
    code = "import os; os.kill(os.getpid(), 9)"
    with pytest.raises(CommandError, match="was killed by SIGKILL") as caught:
        run_command(tmp_path / "t", python(code))
    failure = classify(f"rank 0: CommandError: {caught.value}")
    assert (failure.remedy, failure.cause) == (Remedy.RETRY, Cause.INFRASTRUCTURE)


def test_output_is_in_the_log_without_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_API_TOKEN", "hunter2hunter2")
    code = "import os, sys; print('key', os.environ['MY_API_TOKEN']); sys.exit(3)"
    log = tmp_path / "log"
    with pytest.raises(CommandError), output_to(log):
        run_command(tmp_path / "t", python(code))
    assert "key " in log.read_text()
    assert "hunter2" not in log.read_text()


def test_sigterm_of_the_worker_reaches_the_program(tmp_path: Path) -> None:
    paths = TrialPaths(tmp_path / "t")
    code = "import os, time\nfrom tune_report import report\nreport(loss=1)\ntime.sleep(600)"
    sweep = tmp_path / "s.yaml"
    sweep.write_text(
        f"name: s\ncommand: {json.dumps([*python(code), '{x}'])}\nmetric: loss\n"
        "space: {x: {choice: [1]}}\nscheduler: {name: none}\nbudget: {trials: 1}\n"
    )
    command = [sys.executable, "-m", "tuning", "trial", str(sweep), "--folder", str(paths.root)]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as tuning:
        wait_for(lambda: paths.reports.exists())
        tuning.send_signal(signal.SIGTERM)
        _, errors = tuning.communicate(timeout=60)
    assert errors == "a process got SIGTERM; left after step 1\n"
    assert tuning.returncode == 130
