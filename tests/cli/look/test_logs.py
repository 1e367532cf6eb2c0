"""`tune logs`, `tune attach` and `tune show --watch`, also beside a running driver."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from results.paths import SweepPaths
from results.sweep_folder.lock import acquire_lock
from tests.cli.conftest import Tune
from tests.tuning.simulate import train
from tests.waiting import wait_for

LONGEST_S = 60.0


def write_log(paths: SweepPaths, trial: str, text: str, rank: int = 0, attempt: int = 1) -> None:
    log = paths.trial(trial).log(attempt, rank)
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "a") as file:
        file.write(text)


def test_logs_of_a_trial_by_rank_and_newest_attempt(tune: Tune) -> None:
    paths = tune.sweep("mine")
    write_log(paths, "t0001", "old\n", attempt=1)
    write_log(paths, "t0001", "first\n10%\r20%\rdone\nno end", attempt=2)
    write_log(paths, "t0001", "second\x1b[2J\n", rank=1, attempt=2)
    write_log(paths, "t0002", "other\n")
    zero = "t0001 rank 0 | first\nt0001 rank 0 | done\nt0001 rank 0 | no end\n"
    one = "t0001 rank 1 | second\\x1b[2J\n"
    assert tune("logs", "mine", "t0001").out == zero + one
    assert tune("logs", "mine", "t0001", "--rank", "1").out == one
    assert tune("logs", "mine").out == zero + one + "t0002 rank 0 | other\n"
    assert tune("logs", "mine", "t0000").err == "t0000 has printed nothing\n"
    assert "no trial 't0009'" in tune.refused("logs", "mine", "t0009")


def test_long_lines_are_whole_or_in_parts(tune: Tune) -> None:
    paths = tune.sweep("mine")
    write_log(paths, "t0001", "x" * (2**20 + 5) + "\nend\n")
    lines = tune("logs", "mine").out.splitlines()
    assert "".join(line.partition(" | ")[2] for line in lines) == "x" * (2**20 + 5) + "end"


def test_follow_prints_what_comes_until_the_driver_ends(tune: Tune) -> None:
    paths, _ = tune.unfinished()
    write_log(paths, "t0000", "one\n")
    with acquire_lock(paths.lock):
        watcher = start(tune, "logs", "mine", "-f")
        wait_for(lambda: "one" in said(watcher))
        write_log(paths, "t0000", "two\n")
        wait_for(lambda: "two" in said(watcher))
    assert watcher.wait(LONGEST_S) == 0
    assert said(watcher) == "t0000 rank 0 | one\nt0000 rank 0 | two\n"


def test_attach_shows_the_events_of_another_process(tune: Tune) -> None:
    paths, run = tune.unfinished()
    with acquire_lock(paths.lock):
        watcher = start(tune, "attach", "mine")
        wait_for(lambda: "runs sweep mine" in said(watcher))
        train(run, run.next_trial(), upto=3, value=lambda config, step: -float(step))
        wait_for(lambda: "t0001 step 3  loss -3" in said(watcher))
    assert watcher.wait(LONGEST_S) == 0
    assert "t0001 started" in said(watcher)
    assert said(watcher).endswith("the session has ended; look at it: tune show mine\n")


def test_attach_needs_a_driver(tune: Tune) -> None:
    tune.sweep("mine")
    assert tune.refused("attach", "mine") == (
        "mine: no driver runs it; look at it: tune show mine; continue it: tune resume mine\n"
    )


def test_show_watch_ends_with_the_driver(tune: Tune) -> None:
    paths, _ = tune.unfinished()
    assert "0 of 6 trials finished" in tune("show", "mine", "--watch").out
    with acquire_lock(paths.lock):
        watcher = start(tune, "show", "mine", "--watch")
        wait_for(lambda: "0 of 6 trials finished; driven by " in said(watcher))
    assert watcher.wait(LONGEST_S) == 0
    assert "0 of 6 trials finished; interrupted" in said(watcher)


OUTPUTS: dict[int, Path] = {}


def start(tune: Tune, *args: str) -> subprocess.Popen[bytes]:
    """The program in a process of its own, whose output goes to a file."""
    out = tune.cwd / "out.txt"
    with open(out, "wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "tuning", *args],
            cwd=tune.cwd,
            stdout=file,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
    OUTPUTS[process.pid] = out
    return process


def said(process: subprocess.Popen[bytes]) -> str:
    return OUTPUTS[process.pid].read_text()
