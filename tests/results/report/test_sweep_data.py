"""The data of a report: comparable steps, rungs, importance of parameters, and failures."""

import math
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from results import load
from results.analysis.comparison import summarize_sweep
from results.analysis.leaderboard import summarize
from results.records.trial import (
    Attempt,
    Report,
    TrialRecord,
    TrialState,
    read_trial,
    write_trial,
)
from results.report.plots.rungs import timeline
from results.report.sweep_data import (
    SweepData,
    common_step,
    failure_classes,
    read_sweep_data,
    value_at,
)
from results.report.sweep_page import sections
from tests.reports import append_report
from tests.results.written import add_trial
from tests.tuning.simulate import make_spec, new_sweep
from tuning.search.importance import importances


def test_common_step_is_reached_by_half_of_the_trials() -> None:
    curves = [[(1, 0.5), (2, 0.4), (9, 0.1)], [(1, 0.6), (3, 0.3)], [(1, 0.9)], []]
    assert common_step(curves) == 3
    assert [value_at(c, 3) for c in curves] == [0.4, 0.3, None, None]
    assert common_step(curves, least=3) == common_step(curves, least=8) == 1
    assert common_step([]) == common_step([[]]) == 0


def test_rung_steps_are_those_of_the_scheduler() -> None:
    asha = make_spec(scheduler={"name": "asha", "grace_period": 2, "max_t": 50})
    assert SweepData(asha, [], {}).rung_steps == (2, 6, 18)
    assert SweepData(make_spec(scheduler={"name": "none"}), [], {}).rung_steps == ()


def test_attempt_of_a_killed_driver_ends_at_its_last_report(tmp_path: Path) -> None:
    paths = new_sweep(make_spec(scheduler={"name": "none"}), tmp_path)
    for number in range(2):
        files = paths.trial(add_trial(paths, number, {9: 0.5}, TrialState.RUNNING))
        attempts = (Attempt(number=1, started=100.0),)
        write_trial(files, read_trial(files).model_copy(update={"attempts": attempts}))
    assert [e.record.seconds for e in read_sweep_data(paths).summaries] == [9.0, 9.0]
    assert load(paths.root).trials["seconds"].tolist() == [9.0, 9.0]
    assert [r.seconds for r in summarize_sweep(paths, "").records] == [9.0, 9.0]


def test_front_is_that_of_the_selection(tmp_path: Path) -> None:
    spec = make_spec(metric=["loss", "size"], mode=["min", "min"], scheduler={"name": "none"})
    paths = new_sweep(spec, tmp_path)
    reported = [{"loss": 1.0, "size": 5.0}, {"loss": 2.0, "size": 1.0}]
    reported += [{"loss": math.nan, "size": 0.1}, {"loss": 0.01, "size": 0.01}]
    for number, metrics in enumerate(reported):
        state = TrialState.FAILED if number == 3 else TrialState.COMPLETED
        trial = paths.trial(add_trial(paths, number, {}, state))
        append_report(trial, Report(step=1, metrics=metrics, attempt=1, time=1.0))
    later = Report(step=2, metrics={"loss": 0.5}, attempt=1, time=2.0)  # without the other
    append_report(paths.trial("t0000"), later)
    assert read_sweep_data(paths).front == {"t0000", "t0001"}


def test_importances_put_the_decisive_parameter_first(data: SweepData) -> None:
    found = importances(data)
    assert [i.method for i in found] == ["fANOVA", "PED-ANOVA"]
    for one in found:
        assert next(iter(one.shares)) == "lr"
        assert sum(one.shares.values()) == pytest.approx(1)
    assert found == importances(data)


def test_importances_are_over_the_logarithm_and_name_what_they_leave_out() -> None:
    space: dict[str, Any] = {"x": {"loguniform": [1e-4, 1.0]}, "y": {"uniform": [0.0, 1.0]}}
    space["kind"] = {"choice": {"plain": {}, "rich": {"z": {"uniform": [0.0, 1.0]}}}}
    spec, draw = make_spec(space=space), random.Random(0)
    data = SweepData(spec, [], {})
    for i in range(120):
        x, y = 10 ** draw.uniform(-4, 0), draw.random()
        loss = math.log10(x) + 2 * y  # variances 16 / 12 and 4 / 12
        kind = {"kind": "rich", "z": 0.5} if i % 2 else {"kind": "plain"}
        given: dict[str, Any] = {"params": {"x": x, "y": y, **kind}, "config": {}, "seed": 0}
        record = TrialRecord(id=f"t{i:04}", number=i, created=0.0, **given)
        report = Report(step=1, metrics={"loss": loss}, attempt=1, time=1.0)
        data.summaries.append(summarize(record, [report], "loss", "min"))
        data.curves[record.id] = [(1, loss)]
    for one in importances(data):
        assert one.shares["x"] == pytest.approx(0.8, abs=0.1)
    section = next(sections(replace(data, importances=importances(data))))
    assert section.text[-1] == "Left out, since not all trials have them: z."


def test_failure_classes_are_sorted_by_number_of_attempts() -> None:
    def record(number: int, *errors: str | None, reason: str = "") -> TrialRecord:
        tried = tuple(Attempt(number=i, started=0.0, error=e) for i, e in enumerate(errors))
        state = TrialState.FAILED if reason else TrialState.COMPLETED
        given = {"params": {}, "config": {}, "seed": 0, "created": 0.0, "reason": reason}
        return TrialRecord(id=f"t{number}", number=number, attempts=tried, state=state, **given)

    found = failure_classes(
        [
            record(0, "rank 1: ValueError: no", None),
            record(1, "rank 0: ValueError: other", "rank 0: ValueError: other"),
            record(2, "the workers left before the trial ended"),
            record(3, None, reason="loss is nan"),
            record(4, "rank 12: torch.OutOfMemoryError: 3 GB"),
        ]
    )
    assert [(f.name, f.attempts, f.trials) for f in found] == [
        ("ValueError", 3, ("t0", "t1")),
        ("the workers left before the trial ended", 1, ("t2",)),
        ("loss is nan", 1, ("t3",)),
        ("torch.OutOfMemoryError", 1, ("t4",)),
    ]
    assert found[0].example == "rank 1: ValueError: no"


def test_rungs_are_reached_by_the_clock_of_the_scheduler(data: SweepData) -> None:
    trials = [
        (record, [r.model_copy(update=by_epochs(r)) for r in reports])
        for record, reports in data.trials
    ]
    scheduler = data.spec.scheduler.model_copy(update={"time_attr": "epoch"})
    spec = data.spec.model_copy(update={"scheduler": scheduler})
    events = timeline(replace(data, trials=trials, spec=spec))
    assert [e.text for e in events] == [e.text for e in timeline(data)]
    assert any("reached rung 3" in e.text for e in events)


def by_epochs(report: Report) -> dict[str, Any]:
    return {"step": 100 * report.step, "metrics": {**report.metrics, "epoch": float(report.step)}}
