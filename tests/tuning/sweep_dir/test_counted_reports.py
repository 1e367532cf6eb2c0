"""A record that knows the checksum of its trial's reports finds what one without it finds."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from results.paths import SweepPaths
from results.records.integrity import check_records
from results.records.reports import Report, ReportWriter
from results.records.trial import TrialRecord, TrialState, read_trial, write_trial
from tests.results.written import add_trial
from tuning.controller.attempts import begin_attempt, count_reports, end_attempt
from tuning.controller.resources.placement import Allocation


def run_attempt(sweep: SweepPaths, record: TrialRecord, steps: range) -> TrialRecord:
    """Write an attempt as its worker and its driver do; the trial ends with it."""
    trial = sweep.trial(record.id)
    begun = begin_attempt(record, Allocation(workers=1, cpus=1.0, gpus=0.0))
    write_trial(trial, begun)
    number = len(begun.attempts)
    writer = ReportWriter(trial, number)
    for step in steps:
        writer.append(Report(step=step, metrics={"loss": 1.0}, attempt=number, time=1.0 * step))
    end = {"state": TrialState.COMPLETED, "end_step": steps[-1]}
    ended = count_reports(end_attempt(begun).model_copy(update=end), begun, trial)
    write_trial(trial, ended)
    return ended


def without_checksum(record: TrialRecord) -> TrialRecord:
    attempts = [a.model_copy(update={"all_reports": ""}) for a in record.attempts]
    return record.model_copy(update={"attempts": tuple(attempts)})


@pytest.fixture(scope="module")
def two_attempts(tmp_path_factory: pytest.TempPathFactory) -> SweepPaths:
    sweep = SweepPaths(tmp_path_factory.mktemp("storage") / "s")
    record = read_trial(sweep.trial(add_trial(sweep, 0, {})))
    record = record.model_copy(update={"attempts": (), "state": TrialState.PENDING})
    record = run_attempt(sweep, record, range(1, 4))
    assert run_attempt(sweep, record, range(3, 6)).attempts[-1].all_reports
    return sweep


@given(st.data())
def test_every_damage_is_found_by_both(two_attempts: SweepPaths, data: st.DataObject) -> None:
    trial = two_attempts.trial("t0000")
    content = trial.reports.read_bytes()
    at = data.draw(st.integers(0, len(content)))
    upto = data.draw(st.integers(at, min(len(content), at + 200)))
    damaged = content[:at] + data.draw(st.binary(max_size=3)) + content[upto:]
    record = read_trial(trial)
    try:
        trial.reports.write_bytes(damaged)
        found = check_records(two_attempts, keep=True)
        write_trial(trial, without_checksum(record))
        expected = check_records(two_attempts, keep=True)
        assert found.problems == expected.problems
        assert [reports for _, reports in found.trials()] == [r for _, r in expected.trials()]
    finally:
        trial.reports.write_bytes(content)
        write_trial(trial, record)


def test_damage_before_the_end_stays_damage(two_attempts: SweepPaths, tmp_path: Path) -> None:
    sweep = SweepPaths(tmp_path / "s")
    shutil.copytree(two_attempts.root, sweep.root)
    trial = sweep.trial("t0000")
    first = trial.reports.read_bytes().splitlines(keepends=True)[0]
    trial.reports.write_bytes(trial.reports.read_bytes().removeprefix(first))
    record = run_attempt(sweep, read_trial(trial), range(6, 8))
    assert record.attempts[-1].all_reports == ""
    [problem] = check_records(sweep).problems
    assert "t0000/reports.jsonl" in problem
