"""`tune ls`: state, progress and best value of each sweep."""

from __future__ import annotations

import getpass
import json
import os
import socket
import time
from typing import Any
from unittest.mock import Mock

import pytest

from benchmarks.cli_speed import make_sweep
from results.records.trial import TrialState, read_trial, write_trial
from results.storage.fencing import NullFence
from results.sweep_folder.folder import read_state, record_session_time
from results.sweep_folder.lock import acquire_lock
from tests.cli.conftest import Tune
from tests.search_spaces.loading.test_limits import LARGE
from tests.tuning.simulate import finish, make_spec, open_run, train
from tuning.controller.commands import CommandHandler
from tuning.controller.events import SweepEvents
from tuning.controller.session import open_sweep

TIMED = {"budget": {"trials": 50, "time": 5}}


def test_ls_without_sweeps(tune: Tune) -> None:
    root = tune.cwd / "sweeps"
    assert tune("ls").out == f"no sweeps in {root}; start one with: tune run FILE\n"


def test_ls(tune: Tune) -> None:
    done = tune.sweep("done")
    tune.sweep("new", done=False)
    paths, run = tune.unfinished()
    zapped = tune.sweep("zapped").spec
    zapped.write_text("name: [\n")
    value = tune.best("done")["value"]
    newest = run.spec.metric, f"{json.loads(tune('best', 'mine', '--json').out)['value']:.4g}"

    with acquire_lock(paths.lock):
        output = tune("ls", code=3)
    assert output.lines[:5] == [
        ["sweep", "state", "trials", "best", "metric", "hours", "started", "trainable"],
        ["done", "done", "6/6", f"{value:.4g}", "min", "loss", "0.00", "CPU", "-", "digits"],
        ["mine", "running", "0/6", newest[1], "min", "loss", "0.00", "CPU", "-", "digits"],
        ["new", "interrupted", "0/6", "-", "min", "loss", "0.00", "CPU", "-", "digits"],
        ["zapped", "damaged"],
    ]
    assert output.err.startswith(f"zapped is damaged: {zapped}:2: not valid YAML: ")
    assert len(output.lines) == 5
    again = tune("ls", code=3)
    assert again.lines[2][1] == "interrupted"
    assert tune("ls", "--storage", done.root.parent, code=3).out == again.out


def test_sweep_to_which_a_configuration_was_added_is_not_done(tune: Tune) -> None:
    spec = make_spec(name="mine", scheduler={"name": "none"})
    paths, observer = tune.sweep("mine", scheduler={"name": "none"}), Mock(spec=SweepEvents)
    tune("add", "mine", "x=0.25")
    with open_sweep(paths, spec, [observer]):
        ((start,), _) = observer.session_started.call_args
    assert not start.introduction  # and not "nothing is to do"
    assert tune("ls").lines[1][:3] == ["mine", "interrupted", "6/6"]
    run = open_run(paths.root, spec)
    CommandHandler(run).begin()
    train(run, run.next_trial(), upto=2)  # then the driver is killed
    assert tune("ls").lines[1][:3] == ["mine", "interrupted", "6/7"]
    finish(open_run(paths.root, spec))
    assert tune("ls").lines[1][:3] == ["mine", "done", "7/7"]
    assert "\n7 of 7 trials finished; done" in tune("show", "mine").out


def test_storage_of_several_people_shows_who_began_a_sweep(tune: Tune) -> None:
    root = tune.sweep("done").root.parent
    assert "by" not in tune("ls").lines[0]
    root.chmod(0o2770)
    heading, row = tune("ls").lines
    assert heading[-2:] == ["by", "trainable"]
    assert row[-2] == f"{getpass.getuser()}@{socket.gethostname()}"


def test_sweep_with_spent_time_is_done(tune: Tune) -> None:
    paths, _ = tune.unfinished(**TIMED)
    assert tune("ls").lines[1][1] == "interrupted"
    state = json.loads(paths.state.read_text())
    killed = {**state, "started": [time.time()], "spent": [None]}
    paths.state.write_text(json.dumps(killed))
    os.utime(paths.trial("t0000").record, (2e9, 2e9))  # by a clock that was wrong
    assert tune("ls").lines[1][1] == "interrupted"
    paths.state.write_text(json.dumps({**state, "started": [1.0, 10.0], "spent": [2.5, 2.6]}))
    assert tune("ls").lines[1][1] == "done"
    assert tune("show", "mine").lines[-1] == ["0", "of", "50", "trials", "finished;", "done"]


@pytest.mark.parametrize(
    ("started", "spent"),
    [([1e18], [2.5]), ([float("nan")], [2.5]), ([-1.0], [2.5]), ([1.0], [1e18]), ([1.0], [])],
)
def test_time_that_is_none_is_damage(tune: Tune, started: list[float], spent: list[float]) -> None:
    state = tune.sweep("mine", done=False).state
    state.write_text(json.dumps({"key": "a", "started": started, "spent": spent}))
    listed = tune("ls", code=3)
    assert listed.lines[1][:2] == ["mine", "damaged"]
    assert f"mine is damaged: {state}: not readable (" in listed.err


def test_limit_that_ended_a_sweep_is_recorded(tune: Tune) -> None:
    paths = tune.sweep("mine", budget={"trials": 50, "target": 100.0})
    assert tune("ls").lines[1][1] == "interrupted"  # no session has recorded the end
    output = tune("resume", "mine").out
    assert "ended by budget.target: t0000 reached 100; spent " in output
    assert tune("ls").lines[1][1] == "done"
    shown = "1 of 50 trials finished; done, ended by budget.target: t0000 reached 100"
    assert shown in tune("show", "mine").out
    with record_session_time(paths, NullFence()):
        assert not read_state(paths).ended


def test_failed_trial_is_never_the_best(tune: Tune) -> None:
    paths = tune.sweep("mine", budget={"trials": 2})
    for trial_id in paths.trial_ids():
        files = paths.trial(trial_id)
        failed = read_trial(files).model_copy(update={"state": TrialState.FAILED})
        write_trial(files, failed)
    assert tune("ls").lines[1][3] == "-"
    assert "*" not in tune("show", "mine").out
    assert "none of 2 trials has a finite 'loss' yet" in tune.refused("best", "mine")


def test_hours_of_a_killed_sweep_stand_still(tune: Tune, monkeypatch: pytest.MonkeyPatch) -> None:
    tune.unfinished()
    day_later = time.time() + 86_400
    monkeypatch.setattr(time, "time", lambda: day_later)
    [row] = [words for words in tune("ls").lines if words[:1] == ["mine"]]
    assert (row[1], *row[-4:-2]) == ("interrupted", "0.00", "CPU")


@pytest.mark.parametrize(
    ("code", "shown"),
    [
        ({"trainable": None, "command": ["true", "{args}"]}, ["command:", "true"]),
        ({"trainable": f"train-{'0f' * 32}.py:train"}, ["-", "train"]),  # of a notebook
    ],
)
def test_code_is_named_in_short(tune: Tune, code: dict[str, Any], shown: list[str]) -> None:
    tune.write(f"train-{'0f' * 32}.py", "def train(config): ...\n")
    tune.sweep("mine", **code)
    [row] = [line for line in tune("ls").lines if line[:1] == ["mine"]]
    assert row[-2:] == shown


def test_sweep_with_a_thousand_trials(tune: Tune) -> None:
    paths = make_sweep(tune.cwd / "sweeps", trials=1000, reports=20)
    row = ["large", "done", "1000/1000", "0.999", "max", "accuracy"]
    assert tune("ls").lines[1][: len(row)] == row
    found = tune.best("large")
    assert (found["trial"], found["value"], found["step"]) == ("t0999", 0.999, 20)
    assert found["checkpoint"] == str(paths.trial("t0999").checkpoint(20))
    ids = [words[0] for words in tune("show", "large").lines if words and words[0][0] == "t"]
    assert ids == ["trial", *(f"t{i:04d}" for i in reversed(range(1000)))]
    assert tune.refused("show", "large", "t1000") == (
        "large: no trial 't1000'; it has t0000 to t0999\n"
    )


def test_ls_shows_the_others_beside_a_hostile_sweep(tune: Tune) -> None:
    tune.sweep("good")
    texts = [LARGE[name][0] for name in ("grids", "formula", "squares", "rungs")]
    for i, text in enumerate(texts):
        paths = tune.sweep(f"hostile{i}", done=False)
        paths.spec.write_text(text)
        paths.spec_copy.unlink(missing_ok=True)
    lines = tune("ls", code=3).lines
    assert lines[1][:2] == ["good", "done"]
    assert [line[1] for line in lines[2 : 2 + len(texts)]] == ["damaged"] * len(texts)
