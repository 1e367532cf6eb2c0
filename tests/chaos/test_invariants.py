"""Every kind of broken invariant is reported, and an intact sweep passes."""

import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from results.paths import SweepPaths
from results.records.reports import parse_reports
from results.records.trial import (
    Report,
    TrialRecord,
    TrialState,
    read_reports,
    read_trial,
    write_trial,
)
from results.sweep_folder.folder import SweepState, write_state
from results.sweep_folder.lock import acquire_lock
from search_spaces.loading.sweep_file import dump_sweep
from tests.chaos.cluster import kill_all_with, processes_with
from tests.chaos.invariants import Case, finished_trials, lost_steps, violations
from tests.chaos.outcome import Ledger, Outcome, Row, numbered, table
from tests.chaos.recovery import raw_reports, recovery_s
from tests.reports import append_report
from tests.tuning.simulate import finish, make_spec, open_run, train


@pytest.fixture(scope="module")
def sweeps(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, TrialRecord]]:
    """An uninterrupted sweep, and one whose driver was killed in its fourth trial and resumed."""
    root = tmp_path_factory.mktemp("sweeps")
    finish(open_run(root / "whole", make_spec()))
    killed = open_run(root / "killed", make_spec())
    for _ in range(3):
        train(killed, killed.next_trial())
    train(killed, killed.next_trial(), upto=4)
    before = finished_trials(killed.paths)
    finish(open_run(root / "killed", make_spec()))
    for name in ("whole", "killed"):
        (root / name / "sweep.yaml").write_text(dump_sweep(make_spec()))
    return root, before


@pytest.fixture
def case(sweeps: tuple[Path, dict[str, TrialRecord]], tmp_path: Path) -> Case:
    """A copy that a test may damage."""
    made, before = sweeps
    shutil.copytree(made, tmp_path / "s")
    whole, killed = (SweepPaths(tmp_path / "s" / name) for name in ("whole", "killed"))
    _fill(tmp_path / "mlflow.db", killed)
    return Case(killed, whole, before, interval=3, database=tmp_path / "mlflow.db")


def _fill(database: Path, paths: SweepPaths) -> None:
    """Create the tables and rows of MLflow that the check reads."""
    with closing(sqlite3.connect(database)) as db, db:
        db.execute("create table tags (run_uuid, key, value)")
        db.execute("create table metrics (run_uuid, key, step, value)")
        db.execute("create table runs (run_uuid, status)")
        folder = ("parent", "folder", str(paths.root))
        db.executemany("insert into tags values (?, ?, ?)", [folder, ("parent", "tune.sweep", "k")])
        for trial in paths.trial_ids():
            named = [(trial, "tune.trial_id", trial), (trial, "tune.sweep", "k")]
            db.executemany("insert into tags values (?, ?, ?)", named)
            db.execute("insert into runs values (?, 'FINISHED')", (trial,))
            rows = [
                (trial, key, report.step, value)
                for report in read_reports(paths.trial(trial))
                for key, value in report.metrics.items()
            ]
            db.executemany("insert into metrics values (?, ?, ?, ?)", rows)


def test_invariants_hold_for_a_resumed_sweep(case: Case) -> None:
    assert violations(case) == []
    assert lost_steps(case.paths) == 0


def again(case: Case, trial: str, step: int, attempt: int, loss: float, time: float = 1.0) -> None:
    report = Report(step=step, metrics={"loss": loss}, attempt=attempt, time=time)
    append_report(case.paths.trial(trial), report)


def change(case: Case, trial: str, **update: object) -> None:
    paths = case.paths.trial(trial)
    write_trial(paths, read_trial(paths).model_copy(update=update))


def change_curve(case: Case) -> None:
    trial = case.paths.trial("t0000")
    first, *others = parse_reports(trial.reports.read_bytes(), "t0000")
    trial.reports.unlink()
    metrics = {**first.metrics, "loss": first.metrics["loss"] * (1 + 2**-52)}
    for report in (first.model_copy(update={"metrics": metrics}), *others):
        append_report(trial, report)


def sql(case: Case, statement: str) -> None:
    with closing(sqlite3.connect(case.database or "")) as db, db:
        db.execute(statement)


def redo(case: Case) -> None:
    for step in (1, 2, 3, 4):
        again(case, "t0003", step, 9, 0.5)


DAMAGE: dict[str, tuple[str, Callable[[Case], None]]] = {
    "a finished trial changed": ("I1", lambda c: change(c, "t0000", reason="other")),
    "a finished trial ran again": ("I1", lambda c: again(c, "t0000", 99, 2, 0.1)),
    "a finished trial is gone": ("I1", lambda c: c.paths.trial("t0001").record.unlink()),
    "a step twice in an attempt": ("I2", lambda c: again(c, "t0000", 1, 1, 0.1)),
    "a step twice in MLflow": (
        "I2",
        lambda c: sql(c, "insert into metrics values ('t0000', 'loss', 1, 0.5)"),
    ),
    "a step not in MLflow": ("I2", lambda c: sql(c, "delete from metrics where step = 1")),
    "another value in MLflow": ("I2", lambda c: sql(c, "update metrics set value = value + 1e-9")),
    "two runs of a trial": (
        "I2",
        lambda c: sql(
            c, "insert into tags values ('x', 'tune.trial_id', 't0000'), ('x', 'tune.sweep', 'k')"
        ),
    ),
    "a run that is said to run": ("I2", lambda c: sql(c, "update runs set status = 'RUNNING'")),
    "the last bit of a loss": ("I3", change_curve),
    "a step missing": ("I3", lambda c: c.paths.trial("t0001").reports.write_text("")),
    "another decision": ("I4", lambda c: change(c, "t0004", state=TrialState.FAILED)),
    "another end": ("I4", lambda c: change(c, "t0003", end_step=5)),
    "a trial too many": ("I4", lambda c: write_trial(c.paths.trial("t0007"), _seventh(c))),
    "too much done twice": ("I6", redo),
    "no reason": ("I7", lambda c: change(c, "t0004", reason="")),
    "a failure of no known cause": ("I7", lambda c: change(c, "t0004", attempts=_unclear(c))),
    "a late recovery": ("I8", lambda c: again(c, "t0003", 9, 2, 0.5, time=4e9)),
}


def _seventh(case: Case):
    return read_trial(case.paths.trial("t0004")).model_copy(update={"id": "t0007"})


def _unclear(case: Case):
    first = read_trial(case.paths.trial("t0004")).attempts[0]
    return (first.model_copy(update={"error": "boom"}),)


@pytest.mark.parametrize("name", DAMAGE)
def test_invariants_report_damage(case: Case, name: str) -> None:
    expected, do = DAMAGE[name]
    if name == "a late recovery":
        keep = case.paths.trial("t0003").reports
        lines = keep.read_text().splitlines()
        keep.write_text("\n".join(x for x in lines if '"attempt":1' in x) + "\n")
    do(case)
    assert expected in {line[:2] for line in violations(case)}


def test_invariants_report_a_live_driver(case: Case) -> None:
    with acquire_lock(case.paths.lock):
        assert [line[:2] for line in violations(case)] == ["I5"]
    assert violations(replace(case, whole=None)) == []


def test_invariants_report_leftover_processes(case: Case) -> None:
    assert violations(replace(case, left=lambda: ["actor X"])) == ["I5: actor X is left"]
    with subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read()"],
        stdin=subprocess.PIPE,
        env={"OF_THE_SWEEP": "canary"},
    ) as orphan:
        found = processes_with("OF_THE_SWEEP", "canary", patience_s=0.0)
        assert [line.split()[1] for line in found] == [str(orphan.pid)]
    assert processes_with("OF_THE_SWEEP", "canary") == []


def test_kill_all_with_kills_by_environment() -> None:
    waits = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    with subprocess.Popen(waits, stdin=subprocess.PIPE, env={"OF_THE_SWEEP": "all"}) as one:
        kill_all_with("OF_THE_SWEEP", "all")
        assert one.wait(60) == -signal.SIGKILL


def test_invariants_report_a_missing_next_command(case: Case) -> None:
    said = ("interrupted; continue with: tune resume killed", "Traceback: KeyError")
    assert [line[:2] for line in violations(replace(case, said=said))] == ["I7"]


def test_recovery_time_of_a_resume(case: Case) -> None:
    write_state(case.paths, SweepState("k", (1.0, 2.0), (0.5, None)))
    times = [r.time for t in case.paths.trial_ids() for r in raw(case, t)]
    assert recovery_s(case.paths) == pytest.approx(min(times) - 2.0)


def raw(case: Case, trial: str) -> list[Report]:
    return raw_reports(case.paths, read_trial(case.paths.trial(trial)))


def test_ledger_continues_after_a_torn_line(tmp_path: Path) -> None:
    file = tmp_path / "chaos.jsonl"
    ledger = Ledger(file, "this")
    Ledger(file, "other").note("5", Outcome("2", 5))
    ledger.note("5", Outcome("0", 5, lost=2, recovery_s=9.6))
    ledger.note("5", Outcome("1", 5, problems=("I3: t0001 is other",)))
    file.write_bytes(file.read_bytes() + b'{"row": "5", "case": "to')
    again = Ledger(file, "this")
    assert again.left("5", ["0", "1", "2"]) == ["2"]
    again.note("5", Outcome("2", 5))
    row = Row("killed", numbered, lambda folder, names: iter(()))
    assert table({"5": row}, Ledger(file, "this")).splitlines()[2:] == [
        "| 5 killed | 15 | 10 | 2 | 10 s |",
        "row 5, 1: I3: t0001 is other",
    ]
