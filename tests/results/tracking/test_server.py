"""MLflow's real server, killed during a sweep and started again."""

import urllib.error
import urllib.request
from pathlib import Path

import pytest

from results.paths import SweepPaths
from results.records.trial import TrialState
from results.tracking import Ending
from results.tracking.mlflow.client import check_reachable
from search_spaces.errors import UserError
from tests.results.tracking.servers import free_port, mlflow_server
from tests.results.tracking.tracked import WAIT_S, open_tracker, points, runs, trial, write

pytestmark = pytest.mark.slow


def test_delivery_continues_after_a_server_restart(tmp_path: Path, sweep: SweepPaths) -> None:
    port, key = free_port(), "s/back"
    write(sweep, trial(0), 1, 2)
    with mlflow_server(tmp_path, port) as uri:
        tracker = open_tracker(sweep, uri, key)
        check_reachable(uri)
        assert tracker.deliver_pending()
        assert _status(uri, Host=f"127.0.0.1:{port}") == 200
        assert _status(uri, Host="evil.example") == 403  # DNS rebinding
        assert _status(uri, Origin=uri) == 200
        for other in ("http://localhost:3000", "http://127.0.0.1", "https://evil.example", "null"):
            assert _status(uri, Origin=other) == 403
    write(sweep, trial(0, TrialState.COMPLETED), 3)
    write(sweep, trial(1), 1)
    for changed in ("t0000", "t0001"):
        tracker.changed(changed, reported=False)
    assert not tracker.deliver_pending()
    with pytest.raises(UserError, match=f"MLflow at {uri} does not answer"):
        check_reachable(uri)
    with mlflow_server(tmp_path, port) as uri:
        write(sweep, trial(1, TrialState.STOPPED), 2)
        assert tracker.close(Ending("FINISHED", {"best": 0.1}), WAIT_S) is None
        found = runs(uri, key)
    ended = {name: run.info.status for name, run in found.items()}
    assert ended == {"llm-1": "FINISHED", "t0000": "FINISHED", "t0001": "FINISHED"}
    assert points(tmp_path, found["t0000"]) == [(1, 0.1), (2, 0.2), (3, 0.3)]
    assert points(tmp_path, found["t0001"]) == [(1, 0.1), (2, 0.2)]


def _status(uri: str, **headers: str) -> int:
    """Status of the response to a request with these headers."""
    asked = urllib.request.Request(
        f"{uri}/api/2.0/mlflow/experiments/search?max_results=1", headers=headers
    )
    try:
        with urllib.request.urlopen(asked, timeout=60) as answer:
            return answer.status
    except urllib.error.HTTPError as e:
        with e:
            return e.code
