"""MLflow's real server, killed in the middle of a sweep and started again."""

import urllib.error
import urllib.request
from pathlib import Path

import pytest

from results.records.trial import TrialState
from results.tracking import Ending
from tests.results.servers import free_port, mlflow_server
from tests.results.tracked import WAIT_S, open_tracker, points, runs, sweep, trial, write

__all__ = ["sweep"]
pytestmark = pytest.mark.slow


def test_a_server_that_is_killed_and_comes_back(tmp_path: Path, sweep) -> None:
    """One session: what it could not deliver meanwhile it delivers then, once."""
    port, key = free_port(), "s/back"
    write(sweep, trial(0), 1, 2)
    with mlflow_server(tmp_path, port) as uri:
        tracker = open_tracker(sweep, uri, key)
        assert tracker._round()
        assert _asked_as(uri, f"127.0.0.1:{port}") == 200
        assert _asked_as(uri, "evil.example") == 403  # a page elsewhere that resolves to here
    write(sweep, trial(0, TrialState.COMPLETED), 3)
    write(sweep, trial(1), 1)
    for changed in ("t0000", "t0001"):
        tracker._waiting.add(changed)
    assert not tracker._round()
    assert tracker._error
    with mlflow_server(tmp_path, port) as uri:
        write(sweep, trial(1, TrialState.STOPPED), 2)
        assert tracker.close(Ending("FINISHED", {"best": 0.1}), WAIT_S) is None
        found = runs(uri, key)
    assert {name: run.info.status for name, run in found.items()} == {
        "llm-1": "FINISHED",
        "t0000": "FINISHED",
        "t0001": "KILLED",
    }
    assert points(tmp_path, found["t0000"]) == [(1, 0.1), (2, 0.2), (3, 0.3)]
    assert points(tmp_path, found["t0001"]) == [(1, 0.1), (2, 0.2)]


def _asked_as(uri: str, host: str) -> int:
    """The answer's status to a request that is addressed to a host."""
    asked = urllib.request.Request(f"{uri}/api/2.0/mlflow/experiments/search?max_results=1")
    asked.add_header("Host", host)
    try:
        with urllib.request.urlopen(asked, timeout=60) as answer:
            return answer.status
    except urllib.error.HTTPError as e:
        with e:
            return e.code
