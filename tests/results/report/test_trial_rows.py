"""The rows of trials that charts and table share."""

import math

import pytest

from results.paths import SweepPaths
from results.records.worker_samples import sample_line
from results.report import trial_rows as rows_module
from results.report.sweep_data import SweepData
from results.report.trial_rows import short_number, thinned, trial_details, trial_rows


def test_rows_have_every_trial_best_first(data: SweepData) -> None:
    rows = trial_rows(data)
    assert [row["rank"] for row in rows] == list(range(40))
    assert rows[0]["id"] == data.ranked[0].record.id
    assert rows[0]["values"]["loss"] == pytest.approx(data.ranked[0].value, rel=1e-5)
    assert len(rows[0]["steps"]) == len(rows[0]["curves"]["loss"])
    [failed] = [row for row in rows if row["state"] == "failed"]
    assert (failed["id"], failed["eligible"], failed["curves"]) == ("t0002", False, {})


def test_thinned_curve_keeps_its_ends(data: SweepData, monkeypatch: pytest.MonkeyPatch) -> None:
    thin = thinned(range(12_345))
    assert len(thin) == rows_module.MAX_POINTS
    assert (thin[0], thin[-1]) == (0, 12_344)
    monkeypatch.setattr(rows_module, "_MAX_VALUES", 1)
    assert rows_module.points_per_curve(data) == 8
    assert max(len(row["steps"]) for row in trial_rows(data)) == 8


def test_numbers_that_json_lacks_are_null() -> None:
    assert [short_number(v) for v in (math.nan, math.inf, 1 / 3, 7, "a")] == [
        None,
        None,
        0.333333,
        7,
        "a",
    ]


def test_details_have_usage_and_the_end_of_the_log(paths: SweepPaths, data: SweepData) -> None:
    record = data.ranked[0].record
    log, samples = paths.trial(record.id).log(1, 0), paths.trial(record.id).samples(1, 0)
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("".join(f"line {i}\n" for i in range(50)))
    samples.write_text(sample_line(1, record.attempts[0].started + 2, {"system/cpu_percent": 50.0}))
    found = trial_details(paths, record)
    assert found["usage"] == {"cpu percent": {"0": [(2.0,), (50.0,)]}}
    assert (found["log"][-1], len(found["log"])) == ("rank 0: line 49", 30)
    config = {"epochs": 9, "cap": math.inf, "api_key": "sk-123456789012345678901234567890"}
    told = str(trial_details(paths, record.model_copy(update={"config": config}))["config"])
    assert "'epochs': 9, 'cap': 'Infinity'" in told
    assert "sk-1234" not in told
