"""Records and reports of a trial, written and read back."""

import json
import math

from results.paths import SweepPaths
from results.records.trial import Report, read_reports, read_trial, write_trial
from results.storage.atomic import append_line
from tests.reports import append_report
from tests.results.written import add_trial


def test_read_reports_skips_torn_and_invalid_lines(sweep: SweepPaths) -> None:
    trial = sweep.trial(add_trial(sweep, 0, {1: 0.5}))
    with open(trial.reports, "ab") as f:
        f.write(b'\xff\xfe\n[1, 2]\n{"step": "x"}\n\n{"step": 2, "metrics": {"lo')  # torn
    assert [r.step for r in read_reports(trial)] == [1]
    append_report(trial, Report(step=3, metrics={"loss": 0.3}, attempt=2, time=1.0))
    assert [r.step for r in read_reports(trial)] == [1, 3]
    newer = {"step": 4, "metrics": {}, "attempt": 2, "time": 1, "added": "by a newer version"}
    append_line(trial.reports, json.dumps(newer))
    assert [r.step for r in read_reports(trial)] == [1, 3, 4]


def test_read_reports_prefers_the_newest_attempt(sweep: SweepPaths) -> None:
    trial = sweep.trial(add_trial(sweep, 0, {}))
    for step, attempt, loss in [(1, 1, 0.9), (2, 2, 0.2), (2, 1, 0.8), (1, 1, 0.7)]:
        append_report(trial, Report(step=step, metrics={"loss": loss}, attempt=attempt, time=1.0))
    assert [(r.step, r.metrics["loss"]) for r in read_reports(trial)] == [(1, 0.7), (2, 0.2)]


def test_read_reports_keeps_nan_and_infinity(sweep: SweepPaths) -> None:
    trial = sweep.trial(add_trial(sweep, 0, {1: math.nan, 2: -math.inf}))
    values = [r.metrics["loss"] for r in read_reports(trial)]
    assert math.isnan(values[0])
    assert values[1] == -math.inf


def test_trial_record_round_trips(sweep: SweepPaths) -> None:
    trial = sweep.trial(add_trial(sweep, 0, {}, lr=1e-5, layers=[1, None, "x"]))
    record = read_trial(trial)
    write_trial(trial, record)
    assert read_trial(trial) == record
    assert [p.name for p in trial.root.glob(".*")] == []
