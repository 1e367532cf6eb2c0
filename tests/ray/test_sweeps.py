"""Whole sweeps on a real cluster: run, killed and resumed, stopped, failing, repeated."""

from __future__ import annotations

import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from results import load
from results.paths import SweepPaths
from results.records import TrialRecord, TrialState
from results.tracking import ui_command, ui_environment
from search_spaces.load import load_sweep
from tests.chaos.cluster import Cluster
from tests.chaos.invariants import Case, finished_trials, violations
from tests.ray.conftest import ENV, Tune, answers, wait_for

DIGITS = """
name: digits
trainable: digits
metric: accuracy
mode: max
space:
  learning_rate: {loguniform: [1.0e-4, 1.0e-1]}
  hidden_units: {choice: [16, 32]}
fixed: {epochs: 9, batch_size: 64}
search: {startup_trials: 4}
scheduler: {name: asha, grace_period: 3, max_t: 9}
budget: {trials: 6}
resources: {workers: 2}
checkpoint: {every: 3}
seed: 1
"""


@pytest.fixture
def digits(tune: Tune) -> Path:
    file = tune.cwd / "digits.yaml"
    file.write_text(DIGITS)
    return file


def test_from_a_file_to_a_winner(tune: Tune, digits: Path) -> None:
    out = tune("run", digits)
    assert "t0000 started  learning_rate=" in out
    assert "winner " in out
    assert "6 finished" in out
    states = Counter(r.state for r in tune.trials("digits"))
    assert states.total() == 6
    assert set(states) == {TrialState.COMPLETED, TrialState.STOPPED}

    results = load(tune.paths("digits").root)
    assert results.trials["trial"].iloc[0] == tune.best("digits")["trial"]
    assert tune.paths("digits").leaderboard.exists()
    assert "6/6" in tune("ls")
    assert "of steps 6, 9 in " in tune("show", "digits", "t0000")
    runs = tune.mlflow("select name, status from runs order by name")
    assert [name for name, _ in runs] == ["digits", *(f"t{i:04d}" for i in range(6))]
    expected = {TrialState.COMPLETED: "FINISHED", TrialState.STOPPED: "KILLED"}
    assert {n: s for n, s in runs if n != "digits"} == {
        r.id: expected[r.state] for r in tune.trials("digits")
    }

    assert tune.leaks() == []

    # What ran under Ray comes out the same, bit by bit, without it.
    assert tune("reproduce", "digits", "t0000").startswith("t0000: bit-identical in all of ")
    noted = tune.mlflow("select count(*) from tags where key = 'tune.hardware.workers'")
    assert noted == [(6,)]

    # A second run of the file is a sweep of its own, with the same trials and the same losses.
    tune("run", digits)
    assert tune.values("digits-2") == tune.values("digits")
    assert [r.params for r in tune.trials("digits-2")] == [r.params for r in tune.trials("digits")]


def test_a_killed_driver_is_resumed(
    tune: Tune, digits: Path, joined: Cluster, survived: Callable[[SweepPaths], None]
) -> None:
    """It dies in the middle of its longest later trial; everything ends as if it had not."""
    longer = ["--set", "fixed.epochs=30", "--set", "scheduler.max_t=30"]
    before = joined.here()
    tune("run", digits, "--name", "whole", *longer)
    lengths = [len(curve) for curve in tune.values("whole").values()]
    longest = max(range(1, len(lengths)), key=lengths.__getitem__)
    moment = sum(lengths[:longest]) + lengths[longest] // 2
    tune.killed_at(f"driver:heard:{moment}", "run", digits, "--name", "killed", *longer)

    finished = finished_trials(tune.paths("killed"))
    assert sorted(finished) == [f"t{i:04d}" for i in range(longest)]
    ran = tune.paths("killed").trial(f"t{longest:04d}").environment(1)
    ran.write_text(re.sub(r'"torch": ?"[^"]*"', '"torch": "1.0"', ran.read_text()))
    files = [p for p in tune.paths("killed").ray.rglob("*") if p.is_file()]
    for at, file in enumerate(files):
        with suppress(FileNotFoundError):  # orphans may be at it
            os.truncate(file, 1) if at % 2 else file.unlink()  # Ray's own state: nobody reads it
    out = tune("resume", "killed")
    assert f"t{longest:04d} started attempt 2" in out
    assert "other versions: torch 1.0 then, " in out
    case = Case(
        tune.paths("killed"),
        tune.paths("whole"),
        finished,
        interval=3,
        database=tune.cwd / "sweeps" / "mlflow.db",
        left=lambda: joined.left(before),
    )
    assert violations(case) == []
    survived(case.paths)


FAILING = """
import os, signal
from pathlib import Path
from pydantic import Field
from trainables.base import Trainable, TrainableConfig
from trainables.worker import Answer

class Config(TrainableConfig):
    kind: str = Field(description="what goes wrong")
    mark: str = Field(description="where it is noted that it went wrong")

def save(folder, worker):
    if worker.rank == 0:
        (folder / "state.txt").write_text("state")

class Failing(Trainable):
    Config = Config

    def train(self, config, worker):
        print("pid", os.getpid())
        print("token", os.environ["HF_TOKEN"], flush=True)
        found = worker.resume()
        for step in range(found.step + 1 if found else 1, 7):
            mark = Path(config.mark) / config.kind
            if step == 4 and config.kind != "well":
                worker.barrier()
                self.fail(config.kind, mark, worker.rank)
            answer = worker.report(step=step, metrics={"score": float(step)},
                                   checkpoint=lambda f: save(f, worker), final=step == 6)
            if answer is not Answer.CONTINUE:
                return

    def fail(self, kind, mark, rank):
        if kind == "always":
            raise RuntimeError("this never works: " + os.environ["HF_TOKEN"])
        if kind == "killed" and rank == 1 and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    def evaluate(self, config, weights, split, cache):
        return {"score": 0.0}
"""


def test_failures_cost_their_own_trial_only(tune: Tune) -> None:
    (tune.cwd / "failing.py").write_text(FAILING)
    (tune.cwd / "failing.yaml").write_text(
        "name: failing\ntrainable: failing.py:Failing\nmetric: score\nmode: max\n"
        "space: {kind: {grid_search: [always, well, killed]}}\n"
        f"fixed: {{mark: {tune.cwd}}}\nscheduler: {{name: none}}\n"
        "resources: {workers: 2}\nfailure: {max_retries: 1}\ntracking: {name: none}\n"
    )
    out = tune("run", "failing.yaml")
    by_kind = {r.params["kind"]: r for r in tune.trials("failing")}
    assert by_kind["well"].state is TrialState.COMPLETED
    killed = by_kind["killed"]
    assert (killed.state, len(killed.attempts)) == (TrialState.COMPLETED, 2)
    curve = tune.curve("failing", killed.id)
    assert [(p.step, p.attempt) for p in curve] == [(s, 1 + (s > 3)) for s in range(1, 7)]
    always = by_kind["always"]
    assert always.state is TrialState.FAILED
    assert always.reason.startswith("rank ")
    said = "RuntimeError: this never works: *** (the same error 2 times)"
    assert always.reason.endswith(said), always.reason
    log = tune.paths("failing").trial(always.id).log(2, 0)
    assert str(log) in out
    assert "this never works" in log.read_text()
    assert tune.leaks() == []

    def pid(record: TrialRecord, attempt: int) -> str:
        text = tune.paths("failing").trial(record.id).log(attempt, 1).read_text()
        return text.splitlines()[0]

    lane = pid(always, 1)
    assert lane == pid(always, 2) == pid(by_kind["well"], 1) == pid(killed, 1)
    assert lane != pid(killed, 2)


def test_what_can_never_be_placed_fails_at_once(tune: Tune, digits: Path) -> None:
    said = tune("run", digits, "--set", "resources.workers=4", code=2)
    assert said == (
        "resources: a trial needs 4 CPUs (4 x 1 CPU), but the cluster has 2 CPUs on 1 machine: room"
        " for 2 of 4 workers; lower resources.workers or resources.cpus_per_worker, or join a"
        " larger cluster with --address\n"
    )


HOLD_A_CPU = """
import sys, ray
from ray.util.placement_group import placement_group
ray.init(address=sys.argv[1], log_to_driver=False)
ray.get(placement_group([{"CPU": 1}]).ready())
print("held", flush=True)
sys.stdin.read()
"""


def test_workers_that_never_come_up_end_the_session(tune: Tune, digits: Path) -> None:
    """Somebody else holds a CPU that the cluster counts."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD_A_CPU, tune.address],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=ENV,
    ) as other:
        assert other.stdout.readline() == b"held\n"
        out = tune("run", digits, "--set", "failure.start_timeout=2s", code=1)
        other.stdin.close()
    assert "no trial can start: WorkerGroupStartupTimeoutError: " in out
    assert "go on with: tune resume digits" in out
    (record,) = tune.trials("digits")
    assert record.state is TrialState.PENDING


def test_the_frozen_spec_is_what_was_run(tune: Tune, digits: Path) -> None:
    out = tune("plan", digits, "--set", "budget.trials=3")
    assert "at once    1 of 1 that fit" in out
    assert "for 3 trials" in out
    assert not (tune.cwd / "sweeps").exists()
    assert load_sweep(digits).spec.budget.trials == 6


def test_a_tracking_server_holds_the_runs(tune: Tune, digits: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    store = f"sqlite:///{tune.cwd}/server.db"
    server = subprocess.Popen(
        ui_command(tune.cwd / "artifacts", "127.0.0.1", port),
        env={**ENV, **ui_environment(store)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(ENV, "MLFLOW_TRACKING_URI", f"http://127.0.0.1:{port}")
            wait_for(lambda: answers(f"http://127.0.0.1:{port}/health"), server)
            tune("run", digits, "--set", "budget.trials=2")
            page = tune("ui", "digits", "--no-browser").splitlines()[0]
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait()
    assert page.startswith(f"http://127.0.0.1:{port}/#/compare-runs?runs=")
    assert not (tune.cwd / "sweeps" / "mlflow.db").exists()
    with sqlite3.connect(tune.cwd / "server.db") as db:
        runs = db.execute("select name, status from runs order by name").fetchall()
        points = db.execute("select count(*) from metrics where key = 'accuracy'").fetchone()[0]
    assert [name for name, _ in runs] == ["digits", "t0000", "t0001"]
    assert dict(runs)["digits"] == "FINISHED"
    assert points == sum(len(curve) for curve in tune.values("digits").values())
