"""Reports that come late, twice, or from another clock: the newest attempt counts, once."""

import time
from pathlib import Path

import pytest

from results.records.trial import Report, read_reports
from results.sweep_folder.folder import SweepState, read_state, write_state
from tests.reports import append_report
from tests.tuning.simulate import (
    finish,
    make_spec,
    new_sweep,
    open_run,
    outcome,
    run_sweep,
    run_trials,
    train,
)
from tuning.controller.session import open_sweep
from tuning.controller.sweep import SweepController


def test_late_reports_of_a_superseded_attempt_are_ignored(
    tmp_path: Path, run: SweepController, uninterrupted: SweepController
) -> None:
    job = run.next_trial()
    train(run, job, upto=3)
    run_sweep(tmp_path / "s")
    said = read_reports(job.paths)
    for step in (2, 3, 5):  # an orphan that was cut off, and is connected again
        for _ in range(2):
            append_report(job.paths, Report(step=step, metrics={"loss": 9.9}, attempt=1, time=9e9))
    newer = [r for r in read_reports(job.paths) if r.attempt == 2]
    assert newer == [r for r in said if r.attempt == 2]
    once_more = open_run(tmp_path / "s")
    assert once_more.next_trial() is None
    assert outcome(once_more) == outcome(uninterrupted)


@pytest.mark.parametrize("hours", [-5, 5])
def test_changed_clock_changes_no_decision(
    tmp_path: Path, uninterrupted: SweepController, monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    """The clock changes between two sessions, and within the second one."""
    spec = make_spec(budget={"trials": 6, "time": 3600.0})
    run = run_trials(new_sweep(spec, tmp_path).root, spec, count=1)
    train(run, run.next_trial(), upto=2)
    write_state(run.paths, SweepState("key", (time.time(),), (1.0,)))

    real, off = time.time, [hours * 3600.0]
    monkeypatch.setattr(time, "time", lambda: real() + off[0])
    with open_sweep(run.paths, spec) as resumed:
        assert 1.0 <= resumed.elapsed_s < 1000.0
        train(resumed, resumed.next_trial())
        off[0] = -off[0]
        finish(resumed)
    assert outcome(resumed) == outcome(uninterrupted)
    assert 1.0 <= sum(s or 0.0 for s in read_state(run.paths).spent) < 1000.0
    assert all(a.seconds >= 0.0 for r in resumed.records.values() for a in r.attempts)
