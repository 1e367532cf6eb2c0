"""`Sweep.ask` and `Sweep.tell`: the caller runs the trials; records are those of any sweep."""

from __future__ import annotations

import gc
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

import tuning
from results.paths import SweepPaths
from results.records.integrity import check_records
from results.records.trial import TrialState, read_reports, read_trial, read_trials
from results.storage.fault_injection import VARIABLE
from results.sweep_folder.folder import read_state
from results.sweep_folder.lock import current_driver
from search_spaces.errors import UserError
from tests.tuning.call_costs import costs
from tuning import api
from tuning.controller import trial_table
from tuning.python.ask_tell import AskTell
from tuning.search.study.study import SweepStudy

ASHA = tuning.Scheduler(name="asha", grace_period=1, reduction_factor=2, max_t=4)


def sweep(folder: Path, trials: int = 4, **changes: Any) -> tuning.Sweep:
    given: dict[str, Any] = {"search": {"name": "random"}, "storage": folder, "name": "asked"}
    given |= {"space": {"x": tuning.uniform(0, 1)}, "budget": tuning.Budget(trials=trials)}
    return tuning.Sweep(metric="loss", **{**given, **changes})


def test_sweep_that_is_asked_and_told(tmp_path: Path) -> None:
    asked = sweep(tmp_path, scheduler=ASHA)
    while trial := asked.ask():
        goes_on, step = True, 0
        while goes_on:
            step += 1
            goes_on = asked.tell(trial, {"loss": trial.params["x"] / step}, step=step)
    records = read_trials(SweepPaths(asked.folder))
    assert {record.state for record in records} == {TrialState.COMPLETED, TrialState.STOPPED}
    best = asked.best()
    assert best["params"]["x"] == min(record.params["x"] for record in records)
    assert best["step"] == 4
    check_records(SweepPaths(asked.folder)).require()
    assert current_driver(SweepPaths(asked.folder).lock) is None  # it is finished
    assert tuning.load(asked.folder).ask() is None
    assert (asked.folder / "results" / "leaderboard.parquet").exists()


def test_sweep_that_is_closed_with_open_trials_is_not_done(tmp_path: Path) -> None:
    asked = sweep(tmp_path, trials=2)
    first, _second = asked.ask(2)
    asked.tell(first, {"loss": 1.0}, step=1)
    asked.close()
    assert not read_state(SweepPaths(asked.folder)).ended
    assert len(tuning.load(asked.folder).ask(2)) == 2


def test_session_that_was_closed_is_forgotten(tmp_path: Path) -> None:
    asked = sweep(tmp_path)
    for _ in range(2):
        asked.ask()
        asked.close()
    gc.collect()
    assert not [held for held in gc.get_objects() if type(held) is AskTell]


def test_trials_of_a_batch_are_those_of_single_questions(tmp_path: Path) -> None:
    one, many = sweep(tmp_path / "one", 6), sweep(tmp_path / "many", 6)
    asked = [trial.params for _ in range(6) if (trial := one.ask())]
    batch = many.ask(4)
    assert [trial.params for trial in (*batch, *many.ask(9))] == asked
    assert many.ask(1) == []
    for trial in batch:
        many.tell(trial, {"loss": 1.0})
    many.close()
    records = read_trials(SweepPaths(many.folder))
    assert [r.state for r in records] == [TrialState.COMPLETED] * 4 + [TrialState.PENDING] * 2
    check_records(SweepPaths(many.folder)).require()


@pytest.mark.parametrize("search", ["random", "sobol", "grid"])
def test_cost_of_a_batch_does_not_depend_on_the_trials_before(tmp_path: Path, search: str) -> None:
    space = {"x": {"grid_search": list(range(200))}} if search == "grid" else None
    changed = {"space": space} if space else {}
    asked, found = sweep(tmp_path, 200, search={"name": search}, **changed), []
    _many(asked, 20)
    for _ in range(2):
        with costs() as cost, asked.batched():
            for trial in asked.ask(20):
                asked.tell(trial, {"loss": trial.params["x"]})
        assert cost.names[str(asked.folder / "study.journal")] <= 3, "two reads and a write"
        found.append(cost.calls)
        _many(asked, 80)
    assert found[1] < 1.05 * found[0]
    assert len({record.params["x"] for record in read_trials(SweepPaths(asked.folder))}) == 200
    check_records(SweepPaths(asked.folder)).require()


def test_record_is_written_once_in_a_batch_and_each_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = sweep(tmp_path, 40)
    with asked.batched():
        _many(asked, 20)
        assert read_trials(SweepPaths(asked.folder)) == []
    lines = (asked.folder / "records.jsonl").read_bytes().count(b"t0003")
    assert (lines, len(read_trials(SweepPaths(asked.folder)))) == (2, 20), "before and after it"
    monkeypatch.setattr(trial_table, "LONGEST_S", 0.0)
    with asked.batched():
        asked.ask(3)
        assert len(read_trials(SweepPaths(asked.folder))) == 23
    asked.close()
    check_records(SweepPaths(asked.folder)).require()


def test_records_of_asked_trials_follow_by_themselves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial_table, "LONGEST_S", 0.05)
    asked = sweep(tmp_path)
    paths, batch = SweepPaths(asked._created()[0].root), asked.ask(3)
    deadline = time.monotonic() + 60
    while len(paths.trial_ids()) < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert [r.state for r in read_trials(paths)] == [TrialState.RUNNING] * 3
    asked.tell(batch[1], {"loss": 1.0})
    assert states_in_study(paths, asked) == ["RUNNING", "COMPLETE", "RUNNING"]
    asked.close()
    check_records(paths).require()


def test_trials_may_be_asked_for_in_several_threads(tmp_path: Path) -> None:
    asked = sweep(tmp_path, 40)

    def work(_: int) -> int:
        told = 0
        while trial := asked.ask():
            told += asked.tell(trial, {"loss": trial.params["x"]}) is False
        return told

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(work, range(4))) == 40
    paths = SweepPaths(asked.folder)
    check_records(paths).require()
    assert [r.state for r in read_trials(paths)] == [TrialState.COMPLETED] * 40


@pytest.mark.parametrize("together", [False, True])
def test_outcome_constraints_are_checked_on_what_was_told(tmp_path: Path, together: bool) -> None:
    asked = sweep(tmp_path, 3, outcome_constraints=["size <= 1"])
    batch = asked.ask(2)
    with asked.batched() if together else nullcontext():
        for trial, size in zip(batch, (1, 2), strict=True):
            asked.tell(trial, {"loss": 1.0, "size": size})
    paths = SweepPaths(asked.folder)
    violated = [record.violated_constraints for record in read_trials(paths)]
    asked.close()
    assert violated == [(), ("size <= 1",)]
    constraints = [t.constraints for t in SweepStudy(paths.study, "asked", asked.spec).trials]
    assert constraints[:2] == [{"size <= 1": 0.0}, {"size <= 1": 1.0}]


def states_in_study(paths: SweepPaths, asked: tuning.Sweep) -> list[str]:
    return [t.state.name for t in SweepStudy(paths.study, paths.name, asked.spec).trials]


def _many(asked: tuning.Sweep, count: int) -> None:
    with asked.batched():
        for trial in asked.ask(count):
            asked.tell(trial, {"loss": 1.0})


def test_failed_trial_comes_again_until_its_retries_are_used_up(tmp_path: Path) -> None:
    asked = sweep(tmp_path, 1, failure=tuning.Failure(max_retries=1))
    first = asked.ask()
    assert first is not None
    asked.tell(first, {"loss": 1.0}, step=3)
    assert not asked.tell(first, error="the robot fell over")
    again = asked.ask()
    assert again is not None
    assert (again.id, again.params, again.step) == (first.id, first.params, 3)
    asked.tell(again, {"loss": 1.0}, step=4)
    asked.tell(again, error="the robot fell over again")
    assert asked.ask() is None
    record = read_trial(SweepPaths(asked.folder).trial(first.id))
    assert record.state is TrialState.FAILED
    assert "fell over again" in record.reason


def test_mistakes(tmp_path: Path) -> None:
    asked = sweep(tmp_path)
    trial = asked.ask()
    assert trial is not None
    assert asked.tell(trial, {"loss": 2.0}, step=2)
    with pytest.raises(UserError, match=r"tell\(t0000\): steps must increase, got 2 after 2"):
        asked.tell(trial, {"loss": 1.0}, step=2)
    with pytest.raises(UserError, match="no trial 't0009'"):
        asked.tell("t0009", {"loss": 1.0})
    with pytest.raises(UserError, match="driven by process"):
        tuning.load(asked.folder).ask()
    asked.close()
    with pytest.raises(UserError, match="its trials are run by a Python program"):
        api.resume(str(asked.folder))


PROGRAM = """
import os, sys
import tuning

asked = tuning.load(sys.argv[1])
first, second = asked.ask(2)
asked.tell(first, {"loss": 1.0})
asked.tell(second, {"loss": 2.0}, step=5)
os._exit(0)  # as if it was killed
"""


BATCH = """
import sys
import tuning

asked = tuning.load(sys.argv[1])
with asked.batched():
    for trial in asked.ask(6):
        asked.tell(trial, {"loss": trial.params["x"]})
"""


@pytest.mark.parametrize(
    "point",
    ["driver:asked:3", "trial.json:renamed:4", "trial.json:renamed:6", "study.journal:written", ""],
)
def test_process_that_dies_in_a_batch_loses_no_record(tmp_path: Path, point: str) -> None:
    paths = api.create(sweep(tmp_path, 8)._loaded)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, point)
        ended = subprocess.run(
            [sys.executable, "-c", BATCH, paths.root], check=False, capture_output=True, text=True
        )
    assert (ended.returncode, ended.stderr) == (-signal.SIGKILL if point else 0, "")
    told = {r.id for r in read_trials(paths) if r.state is TrialState.COMPLETED}
    asked = tuning.load(paths.root)
    _many(asked, 8)
    asked.close()
    check_records(paths).require()
    once = sweep(tmp_path / "once", 8)
    assert [r.params for r in read_trials(paths)] == [trial.params for trial in once.ask(8)]
    again = {r.id for r in read_trials(paths) if len(r.attempts) > 1}
    assert again.isdisjoint(told)
    assert states_in_study(paths, asked) == ["COMPLETE"] * 8


def test_another_process_goes_on_where_one_died(tmp_path: Path) -> None:
    paths = api.create(sweep(tmp_path)._loaded)
    subprocess.run([sys.executable, "-c", PROGRAM, paths.root], check=True)
    asked = tuning.load(paths.root)
    second = asked.ask()
    assert second is not None
    assert (second.id, second.step) == ("t0001", 5)
    assert not asked.tell(second, {"loss": 0.5}, step=6) or not asked.tell(second)
    third = asked.ask()
    assert third is not None
    assert third.id == "t0002"
    asked.close()
    assert [r.attempt for r in read_reports(paths.trial("t0001"))] == [1, 2]
    assert asked.best()["trial"] == "t0001"
