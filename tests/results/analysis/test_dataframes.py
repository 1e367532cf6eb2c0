"""A sweep folder as pandas tables."""

import json
from pathlib import Path

import pandas as pd
import pytest

from results import load
from results.analysis.dataframes import (
    attempts_frame,
    metrics_csv,
    reports_frame,
    trials_frame,
    write_parquet,
)
from results.analysis.leaderboard import read_leaderboard
from results.paths import SweepPaths
from results.records.trial import Attempt, Report, read_trial, write_trial
from results.sweep_folder.folder import SweepState, write_state
from search_spaces.errors import UserError
from tests.reports import append_report
from tests.results.written import add_trial
from tests.tuning.simulate import make_spec

SHIPPED = Path(__file__).parents[3] / "search_spaces" / "digits.yaml"


def test_trials_frame_has_a_column_per_parameter(sweep: SweepPaths) -> None:
    add_trial(sweep, 0, {1: 0.5}, lr=0.1, layers=[1, 2])
    add_trial(sweep, 1, {1: 0.4, 2: 0.3}, lr="auto", width=8)
    add_trial(sweep, 2, {})
    frame = trials_frame(read_leaderboard(sweep, "loss", "min"), make_spec())
    fixed = ["trial", "state", "value", "best_value", "step", "seconds", "attempts", "reason"]
    assert list(frame) == [*fixed, "params.lr", "params.width", "params.layers"]
    assert list(frame["trial"]) == ["t0001", "t0000", "t0002"]
    assert list(frame["seconds"]) == [3.5] * 3
    assert frame["value"].isna().tolist() == [False, False, True]
    write_parquet(sweep, frame)
    back = pd.read_parquet(sweep.leaderboard)
    assert list(back) == list(frame)
    assert json.loads(back["params.lr"][0]) == "auto"
    assert json.loads(back["params.layers"][1]) == [1, 2]
    assert list(reports_frame(sweep)) == ["trial", "step", "attempt", "time", "loss"]
    assert len(reports_frame(sweep)) == 3


def test_whole_numbers_beside_missing_values_are_exact(sweep: SweepPaths) -> None:
    add_trial(sweep, 0, {1: 0.5}, salt=2**53 + 1, width=8)
    add_trial(sweep, 1, {1: 0.6})
    frame = trials_frame(read_leaderboard(sweep, "loss", "min"), make_spec())
    assert frame["params.salt"].tolist() == [2**53 + 1, None]
    write_parquet(sweep, frame)
    assert pd.read_parquet(sweep.leaderboard)["params.salt"][0] == str(2**53 + 1)
    assert frame["params.width"].dtype == "float64"


def test_trials_frame_has_a_column_per_objective(sweep: SweepPaths) -> None:
    files = sweep.trial(add_trial(sweep, 0, {1: 0.5}))
    append_report(files, Report(step=2, metrics={"loss": 0.4, "size": 7}, attempt=1, time=1.0))
    spec = make_spec(metric=["loss", "size"])
    frame = trials_frame(read_leaderboard(sweep, "loss", "min"), spec)
    assert (frame["value"].tolist(), frame["value.size"].tolist()) == ([0.4], [7.0])


def test_metric_with_the_name_of_another_column_has_its_own(sweep: SweepPaths) -> None:
    files = sweep.trial(add_trial(sweep, 0, {}))
    report = Report(step=1, metrics={"loss": 0.4, "time": 7.0}, attempt=1, time=1.5)
    append_report(files, report)
    frame = reports_frame(sweep)
    assert (frame["time"].tolist(), frame["metric.time"].tolist()) == ([1.5], [7.0])
    assert metrics_csv([report]) == "step,time,attempt,loss,metric.time\n1,1.5,1,0.4,7.0\n"


def test_frames_of_an_empty_sweep_are_empty(sweep: SweepPaths) -> None:
    sweep.trials.mkdir(parents=True)
    frame = trials_frame(read_leaderboard(sweep, "loss", "min"), make_spec())
    write_parquet(sweep, frame)
    assert len(pd.read_parquet(sweep.leaderboard)) == 0
    assert list(reports_frame(sweep)) == ["trial", "step", "attempt", "time"]
    assert len(attempts_frame(sweep)) == 0


def test_load_reads_a_sweep_folder(sweep: SweepPaths) -> None:
    add_trial(sweep, 0, {1: 0.5})
    sweep.spec.write_bytes(SHIPPED.read_bytes())
    write_state(sweep, SweepState("key", (1.0,), (2.0,)))
    loaded = load(str(sweep.root))
    assert (loaded.name, loaded.metric, loaded.mode) == ("digits-1", "accuracy", "max")
    assert len(loaded.trials) == len(loaded.reports) == len(loaded.attempts) == 1
    with pytest.raises(UserError):
        load(sweep.root / "nothing")


def test_attempts_frame_has_a_row_per_attempt(sweep: SweepPaths) -> None:
    files = sweep.trial(add_trial(sweep, 0, {1: 0.5}))
    broken = Attempt(number=1, started=100.0, ended=103.5, error="OSError: disk")
    again = Attempt(number=2, started=110.0)
    record = read_trial(files)
    write_trial(files, record.model_copy(update={"attempts": (broken, again)}))
    frame = attempts_frame(sweep)
    assert list(frame) == ["trial", "attempt", "started", "ended", "seconds", "error"]
    assert frame["attempt"].tolist() == [1, 2]
    assert frame["seconds"].tolist()[0] == 3.5
    assert frame[["ended", "seconds"]].isna().to_numpy().tolist() == [[False] * 2, [True] * 2]
    assert frame["error"].tolist()[0] == "OSError: disk"
