"""Trials in order, from the files of a sweep folder alone."""

import json
import math
from pathlib import Path

import pytest

from results.analysis.dataframes import reports_frame
from results.analysis.leaderboard import read_leaderboard
from results.paths import SweepPaths
from results.records.trial import (
    Report,
    TrialState,
    append_report,
    read_reports,
    read_trial,
    write_trial,
)
from results.storage.atomic import append_line
from search_spaces.errors import UserError
from tests.results.written import add_trial


@pytest.fixture
def sweep(tmp_path: Path) -> SweepPaths:
    return SweepPaths(tmp_path / "digits-1")


def order(sweep: SweepPaths, mode: str = "min") -> list[tuple[str, float | None]]:
    return [(line.record.id, line.value) for line in read_leaderboard(sweep, "loss", mode)]


def test_trials_are_ranked_by_their_last_value(sweep: SweepPaths) -> None:
    add_trial(sweep, 0, {1: 0.9, 2: 0.5})
    add_trial(sweep, 1, {1: 0.1, 2: 0.7, 3: 0.6})  # its best weights are gone
    add_trial(sweep, 2, {})
    add_trial(sweep, 3, {1: 0.5})
    add_trial(sweep, 4, {1: 0.2, 2: math.nan})
    add_trial(sweep, 5, {1: 0.01}, TrialState.FAILED)
    ids = ["t0000", "t0003", "t0001", "t0005", "t0002", "t0004"]
    assert order(sweep) == list(zip(ids, [0.5, 0.5, 0.6, 0.01, None, None], strict=True))
    assert [t for t, _ in order(sweep, "max")] == [ids[2], ids[0], ids[1], *ids[3:]]
    lines = {line.record.id: line for line in read_leaderboard(sweep, "loss", "min")}
    assert (lines["t0001"].best_value, lines["t0001"].best_step) == (0.1, 1)
    assert (lines["t0001"].step, lines["t0001"].reports) == (3, 3)
    assert (lines["t0004"].best_value, lines["t0004"].step) == (0.2, 2)


def test_reports_after_the_end_do_not_count(sweep: SweepPaths) -> None:
    add_trial(sweep, 0, {1: 0.5, 2: 0.4, 3: 0.1}, TrialState.STOPPED, end_step=2)
    [line] = read_leaderboard(sweep, "loss", "min")
    assert (line.value, line.best_value, line.step, line.reports) == (0.4, 0.4, 2, 2)
    assert list(reports_frame(sweep)["step"]) == [1, 2]


def test_torn_and_foreign_lines_are_passed_over(sweep: SweepPaths) -> None:
    trial = sweep.trial(add_trial(sweep, 0, {1: 0.5}))
    with open(trial.reports, "ab") as f:
        f.write(b'\xff\xfe\n[1, 2]\n{"step": "x"}\n\n{"step": 2, "metrics": {"lo')  # died here
    assert [r.step for r in read_reports(trial)] == [1]
    append_report(trial, Report(step=3, metrics={"loss": 0.3}, attempt=2, time=1.0))
    assert [r.step for r in read_reports(trial)] == [1, 3]
    newer = {"step": 4, "metrics": {}, "attempt": 2, "time": 1, "added": "by a newer version"}
    append_line(trial.reports, json.dumps(newer))
    assert [r.step for r in read_reports(trial)] == [1, 3, 4]
    [line] = read_leaderboard(sweep, "loss", "min")
    assert (line.value, line.step) == (0.3, 4)  # the newest report that has the metric


def test_the_later_attempt_wins_a_step(sweep: SweepPaths) -> None:
    trial = sweep.trial(add_trial(sweep, 0, {}))
    for step, attempt, loss in [(1, 1, 0.9), (2, 2, 0.2), (2, 1, 0.8), (1, 1, 0.7)]:
        append_report(trial, Report(step=step, metrics={"loss": loss}, attempt=attempt, time=1.0))
    assert [(r.step, r.metrics["loss"]) for r in read_reports(trial)] == [(1, 0.7), (2, 0.2)]


def test_nan_survives_the_trip(sweep: SweepPaths) -> None:
    trial = sweep.trial(add_trial(sweep, 0, {1: math.nan, 2: -math.inf}))
    values = [r.metrics["loss"] for r in read_reports(trial)]
    assert math.isnan(values[0])
    assert values[1] == -math.inf


def test_a_record_survives_the_trip(sweep: SweepPaths) -> None:
    trial = sweep.trial(add_trial(sweep, 0, {}, lr=1e-5, layers=[1, None, "x"]))
    record = read_trial(trial)
    write_trial(trial, record)
    assert read_trial(trial) == record
    assert [p.name for p in trial.root.glob(".*")] == []


def test_a_damaged_record_is_named(sweep: SweepPaths) -> None:
    trial = sweep.trial(add_trial(sweep, 0, {}))
    trial.record.write_text('{"id": "t0000"')
    with pytest.raises(UserError, match=r"t0000/trial\.json: not a readable trial record"):
        read_trial(trial)


def test_a_thousand_trials(sweep: SweepPaths) -> None:
    for n in range(1000):
        add_trial(sweep, n, {s: (n * 7919 % 1000) + 20.0 - s for s in range(1, 21)}, lr=n / 1000)
    lines = read_leaderboard(sweep, "loss", "min")
    assert [line.value for line in lines] == [float(v) for v in range(1000)]
    assert all(line.reports == 20 for line in lines)
