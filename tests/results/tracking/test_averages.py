"""Averages are runs of their own in MLflow, stored once, read from their folders."""

from pathlib import Path
from typing import Any

import pytest

from results.paths import SweepPaths
from results.tracking import Ending, SweepFacts, mlflow_tracker
from tests.results.averaging.soups import add, at, build
from tests.results.tracking.tracked import WAIT_S, uri_of


@pytest.fixture
def uri(storage: Path) -> str:
    return uri_of(storage)


@pytest.fixture
def sweep(sweep: SweepPaths) -> SweepPaths:
    add(sweep, 0, at(1), 0.1)
    add(sweep, 1, at(9, 9), 0.2)
    add(sweep, 2, at(-1), 0.3)
    return sweep


def deliver(paths: SweepPaths, uri: str) -> None:
    facts = SweepFacts(str(paths.root), "s", {}, {})
    tracker = mlflow_tracker(paths, uri, paths.root / "artifacts", str(paths.root), facts)
    assert tracker.close(Ending("FINISHED", {}), WAIT_S) is None


def runs(uri: str, paths: SweepPaths) -> list[Any]:
    from mlflow import MlflowClient

    client = MlflowClient(uri)
    return client.search_runs([client.get_experiment_by_name(str(paths.root)).experiment_id])


def test_average_is_a_run_of_its_own(sweep: SweepPaths, uri: str) -> None:
    soup = build(sweep, "greedy")
    build(sweep, "weighted", weights=[1, 2, 1])
    for _ in range(2):
        deliver(sweep, uri)
    found = {r.info.run_name: r for r in runs(uri, sweep)}
    assert sorted(found) == ["greedy", "s", "t0000", "t0001", "t0002", "weighted"]
    assert len(runs(uri, sweep)) == 6
    run = found["greedy"]
    assert run.info.status == "FINISHED"
    tags = run.data.tags
    assert tags["mlflow.parentRunId"] == found["s"].info.run_id
    assert tags["tune.members"] == "t0000, t0002"
    members = [found[m].info.run_id for m in ("t0000", "t0002")]
    assert tags["tune.member_runs"] == ", ".join(members)
    assert tags["tune.init"] == "abc"
    assert tags["tune.promoted"] == "true"
    assert run.data.params["candidates"] == "t0000, t0001, t0002"
    assert run.data.metrics["test/loss"] == soup.scores["greedy"].mean
    low, high = soup.scores["single"].interval or (0.0, 0.0)
    assert run.data.metrics["test/single/loss_low"] == low
    assert run.data.metrics["test/single/loss_high"] == high
    assert run.data.metrics["test/gain"] == soup.gain.mean
    assert found["weighted"].data.params["share.t0001"] == "0.5"
    kept = Path(run.info.artifact_uri.removeprefix("file://"), "soup.json")
    assert kept.read_text() == (sweep.soup("greedy") / "soup.json").read_text()


def test_new_average_of_the_same_name_is_a_new_run(sweep: SweepPaths, uri: str) -> None:
    build(sweep, "weighted", weights=[1, 2, 1])
    deliver(sweep, uri)
    build(sweep, "weighted", weights=[1, 1, 1])
    deliver(sweep, uri)
    found = [r for r in runs(uri, sweep) if r.info.run_name == "weighted"]
    assert sorted(r.data.params["share.t0001"] for r in found) == [str(1 / 3), "0.5"]


def test_damaged_soup_is_skipped(sweep: SweepPaths, uri: str) -> None:
    build(sweep, "greedy")
    (sweep.soup("greedy") / "soup.json").write_text("{")
    deliver(sweep, uri)
    assert len(runs(uri, sweep)) == 4
