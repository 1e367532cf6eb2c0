"""A sweep on a real cluster from file to winner, and again with a killed driver."""

from __future__ import annotations

import os
import re
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from results import load
from results.paths import SweepPaths
from results.records.trial import TrialState
from tests.chaos.cluster import Cluster
from tests.chaos.invariants import Case, finished_trials, violations
from tests.ray.conftest import ENV, Tune
from tests.results.tracking.servers import free_port, mlflow_server

SHIPPED = Path(__file__).parents[2] / "search_spaces" / "conditional.yaml"
SETTINGS = {"adam": {"learning_rate", "weight_decay"}, "sgd": {"learning_rate", "momentum"}}
CHANGES = (
    "budget.trials=6",
    "fixed.epochs=12",
    "points=[{num_layers: 2, hidden_units: 64, optimizer: adam}, {optimizer: sgd}]",
    "search.startup_trials=4",
    "scheduler.grace_period=3",
    "scheduler.max_t=12",
    "resources.workers=2",
    "checkpoint={every: 3, keep: 2}",
)
RUN = ("run", SHIPPED, *(part for change in CHANGES for part in ("--set", change)))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, address: str) -> Tune:
    """The sweep, uninterrupted."""
    tune = Tune(tmp_path_factory.mktemp("whole"), address)
    (tune.cwd / "out.txt").write_text(tune(*RUN))
    return tune


def test_sweep_runs_from_file_to_winner(whole: Tune) -> None:
    out = (whole.cwd / "out.txt").read_text()
    assert re.search(r"t0000 started  .*optimizer=adam", out)
    assert "winner " in out
    assert "6 finished" in out
    states = Counter(r.state for r in whole.trials("conditional"))
    assert states.total() == 6
    assert set(states) == {TrialState.COMPLETED, TrialState.STOPPED}

    results = load(whole.paths("conditional").root)
    assert results.trials["trial"].iloc[0] == whole.best("conditional")["trial"]
    assert whole.paths("conditional").leaderboard.exists()
    assert "6/6" in whole("ls")
    assert "of steps 9, 12 in " in whole("show", "conditional", "t0000")
    runs = dict(whole.mlflow("select name, status from runs"))
    expected = {TrialState.COMPLETED: "FINISHED", TrialState.STOPPED: "FINISHED"}
    trials = {r.id: expected[r.state] for r in whole.trials("conditional")}
    assert runs == {"conditional": "FINISHED", **trials}
    noted = whole.mlflow("select count(*) from tags where key = 'tune.hardware.workers'")
    assert noted == [(6,)]
    assert whole.leaks() == []


def test_reproduce_without_ray_is_bit_identical(whole: Tune) -> None:
    said = whole("reproduce", "conditional", "t0000")
    assert said.startswith("t0000: bit-identical in all of ")


def test_conditional_space_gives_each_trial_its_branch(whole: Tune) -> None:
    records = whole.trials("conditional")
    for record in records:
        config = record.config
        others = {"learning_rate", "weight_decay", "momentum"} - SETTINGS[config["optimizer"]]
        assert SETTINGS[config["optimizer"]] <= set(config)
        assert others.isdisjoint(config)
        assert config["num_layers"] * config["hidden_units"] <= 384
        assert config["dropout"] == pytest.approx(0.1 * (config["num_layers"] - 1))
    assert {r.config["optimizer"] for r in records} == set(SETTINGS)
    assert (records[0].params["num_layers"], records[0].params["hidden_units"]) == (2, 64)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """Address of an MLflow server with a database of its own, `mlflow.db`."""
    with mlflow_server(tmp_path, free_port()) as address:
        yield address


def test_sweep_resumes_after_a_killed_driver(
    whole: Tune,
    joined: Cluster,
    server: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    survived: Callable[[SweepPaths], None],
) -> None:
    """The driver of a second run dies in the middle of the longest later trial. The folder and the
    tracking server end as if it had not.
    """
    monkeypatch.setitem(ENV, "MLFLOW_TRACKING_URI", server)
    before, killed = joined.here(), whole.paths("conditional-2")
    lengths = [len(curve) for curve in whole.values("conditional").values()]
    longest = max(range(1, len(lengths)), key=lengths.__getitem__)
    moment = sum(lengths[:longest]) + lengths[longest] // 2
    whole.killed_at(f"driver:heard:{moment}", *RUN)

    finished = finished_trials(killed)
    assert sorted(finished) == [f"t{i:04d}" for i in range(longest)]
    ran = killed.trial(f"t{longest:04d}").environment(1)
    ran.write_text(re.sub(r'"torch": ?"[^"]*"', '"torch": "1.0"', ran.read_text()))
    files = [p for p in killed.ray.rglob("*") if p.is_file()]
    for at, file in enumerate(files):
        with suppress(FileNotFoundError):  # orphans may write there
            os.truncate(file, 1) if at % 2 else file.unlink()  # Ray's own state is not read
    out = whole("resume", "conditional-2")
    assert f"t{longest:04d} started attempt 2" in out
    assert "other versions: torch 1.0 then, " in out
    case = Case(
        killed,
        whole.paths("conditional"),
        finished,
        interval=3,
        database=tmp_path / "mlflow.db",
        left=lambda: joined.left(before),
    )
    assert violations(case) == []
    survived(killed)

    page, comparison, curves = whole("ui", "conditional-2", "--no-browser").splitlines()
    expected = r"/#/experiments/\d+/runs\?workflowType=machine_learning&viewStateShareKey=\w+"
    assert re.fullmatch(server + expected, page)
    assert comparison == f"comparison {page}&compareRunsMode=CHART"
    assert curves.startswith(f"curves {server}/#/metric?runs=")
    with closing(sqlite3.connect(tmp_path / "mlflow.db")) as db:
        runs = dict(db.execute("select name, status from runs").fetchall())
    assert runs == {"conditional-2" if n == "conditional" else n: s for n, s in _runs(whole)}
    assert len(_runs(whole)) == 1 + 6, "the server's runs are not in the folder's database"


def _runs(tune: Tune) -> list[tuple[str, str]]:
    """Names and states in the folder's own database."""
    return tune.mlflow("select name, status from runs")
