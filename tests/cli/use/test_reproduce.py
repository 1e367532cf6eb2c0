"""`tune reproduce` of a trial that was trained, and the recorded environments that it compares."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from results.paths import SweepPaths
from results.records import environment
from results.records.environment import Environment, differences
from results.records.trial import Report, read_reports
from results.records.worker_samples import read_samples
from tests.cli.conftest import Tune
from tests.cli.trained import DIGITS, trained
from tests.reports import append_report
from tuning.evaluation.reproduce import first_difference


def report(step: int, **metrics: float) -> Report:
    return Report(step=step, metrics=metrics, attempt=1, time=float(step))


def test_first_difference_of_two_curves() -> None:
    then = [report(1, loss=0.1 + 0.2, rows_per_second=5.0), report(2, loss=float("nan"))]
    assert first_difference(then, [*then, report(3, loss=1.0)]) is None
    assert first_difference(then, [report(1, loss=0.1 + 0.2, rows_per_second=9.0), then[1]]) is None
    used = [report(1, loss=0.3, mfu=40.0, peak_memory_gib=2.5)]
    assert first_difference(used, [report(1, loss=0.3, mfu=41.0, peak_memory_gib=2.6)]) is None
    assert first_difference(then, [report(1, loss=0.3), then[1]]) == (
        "step 1: loss was 0.30000000000000004, is 0.3"
    )
    assert first_difference(then, then[:1]) == "step 2 was not reported again"


def test_differences_of_two_environments() -> None:
    here = Environment(
        source={"a.py": "1"}, data="x", versions={"torch": "2"}, hardware={"device": "c"}
    )
    other = Environment(
        source={"a.py": "2", "b.py": "1"},
        data="y",
        versions={"torch": "3"},
        hardware={"device": "c", "workers": "2"},
    )
    assert differences(here, here) == []
    assert differences(here, other) == [
        "code: a.py, b.py",
        "data: x then, y now",
        "versions: torch 2 then, 3 now",
        "hardware: workers none then, 2 now",
    ]


@pytest.fixture
def sweep(tune: Tune) -> SweepPaths:
    return trained(DIGITS, budget={"trials": 1})


@pytest.mark.slow
def test_reproduce_compares_the_curves(tune: Tune, sweep: SweepPaths) -> None:
    files = sweep.trial("t0000")
    noted = environment.read(files, 1)
    assert noted is not None
    assert "digits/task.py" in noted.source
    assert {"worker.py", "training/run.py"} <= noted.source.keys()
    assert len(noted.data or "") == 64
    assert noted.hardware["workers"] == "1"
    first_sample, *_, last_sample = read_samples(files, 1)
    assert (first_sample.step, last_sample.step) == (1, 2)
    assert first_sample.values["system/memory_mb"] > 10

    reported = read_reports(files)
    first = reported[0]
    wrong = {**first.metrics, "loss": 0.125}
    append_report(files, first.model_copy(update={"metrics": wrong}))
    changed = noted.model_copy(update={"versions": {**noted.versions, "torch": "1.0"}})
    environment.write(files, 1, changed)
    said = tune("reproduce", "mine", "t0000", code=1).out.splitlines()
    assert said[0].startswith("t0000: not the same; step 1: loss was 0.125, is ")
    assert said[1].startswith("different versions: torch 1.0 then, ")
    again = read_reports(sweep.reproduction("t0000"))
    assert [r.metrics for r in again] == [r.metrics for r in reported]
    verdict = json.loads((sweep.reproduction("t0000").root / "verdict.json").read_text())
    assert (verdict["identical"], verdict["reports"]) == (False, 2)


def test_reproduce_refuses_what_it_cannot_run(tune: Tune, tmp_path: Path) -> None:
    paths = tune.sweep("mine")
    assert "no trial 't9999'" in tune.refused("reproduce", "mine", "t9999")
    # a simulated trial is no trial of digits
    assert "t0000: no longer fits digits: " in tune.refused("reproduce", "mine", "t0000")
    paths.trial("t0000").reports.unlink()
    assert tune("reproduce", "mine", "t0000", "--accept-damage", code=2).err.splitlines() == [
        "mine: incomplete: t0000/reports.jsonl has no report, its record says 9",
        "mine: trial t0000 has no reports to compare with",
    ]
