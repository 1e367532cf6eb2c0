"""A sweep of 200 trials, while MLflow's server and its database are lost in the middle."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from mlflow import MlflowClient
from pyarrow.fs import FileSelector

from results.paths import SweepPaths
from results.storage.object_store import open_object_store
from tests.chaos.cluster import ENV
from tests.cluster.mlflow_services import Services, why_not
from tests.object_store import BUCKET, s3_server

pytestmark = [
    pytest.mark.skipif(why_not() is not None, reason=str(why_not())),
]
TRIALS = 200
SWEEP = """
name: short
description: Very short trials.
trainable: tests.cluster.short:Short
metric: loss
space: {x: {uniform: [0, 1]}}
search: {name: random}
scheduler: {name: none}
budget: {trials: 200}
tracking: {uri: URI, log_model: winner}
"""
LONGEST_S = 400.0


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Services]:
    with (
        s3_server(),
        TemporaryDirectory(prefix="postgres-") as folder,  # PostgreSQL runs as another user
        Services(Path(folder), tmp_path / "server.log") as found,
    ):
        yield found


def wait_until(condition: Callable[[], bool], driver: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + LONGEST_S
    while not condition():
        assert time.monotonic() < deadline
        assert driver.poll() is None, driver.communicate()
        time.sleep(0.2)


def test_sweep_survives_the_loss_of_mlflow_and_its_database(
    services: Services, tmp_path: Path
) -> None:
    (tmp_path / "short.yaml").write_text(SWEEP.replace("URI", services.uri))
    paths = SweepPaths(tmp_path / "sweeps" / "short")
    driver = subprocess.Popen(
        [sys.executable, "-m", "tuning", "run", "short.yaml"],
        cwd=tmp_path,
        env={**ENV, **{k: v for k, v in os.environ.items() if k.startswith("AWS_")}},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        wait_until(lambda: len(paths.trial_ids()) > 20 and _runs(services) > 10, driver)
        services.kill()
        before = len(paths.trial_ids())
        wait_until(lambda: len(paths.trial_ids()) > min(before + 40, TRIALS - 20), driver)
        services.start()
        output, _ = driver.communicate(timeout=LONGEST_S)
    finally:
        driver.kill()
        driver.wait()
    assert driver.returncode == 0, output
    assert "not delivered yet" not in output
    _check_runs(services)
    _check_points(services)
    _check_model(services, output)


def _runs(services: Services) -> int:
    try:
        ((number,),) = services.rows("select count(*) from runs")
    except Exception:  # noqa: BLE001 - there is no table yet
        return 0
    return int(str(number))


def _check_runs(services: Services) -> None:
    found = services.rows("select name, status from runs order by name")
    expected = [("short", "FINISHED"), *((f"t{i:04d}", "FINISHED") for i in range(TRIALS))]
    assert found == expected


def _check_points(services: Services) -> None:
    """Each (run, metric, step) is there, and once."""
    query = "select name, key, step, count(*) from metrics join runs using (run_uuid) "
    rows = services.rows(query + "where key = 'loss' group by name, key, step")
    assert len(rows) == 2 * TRIALS
    assert {row[3] for row in rows} == {1}


def _check_model(services: Services, output: str) -> None:
    client = MlflowClient(services.uri)
    (experiment,) = [e for e in client.search_experiments() if e.name == "short"]
    (parent,) = client.search_runs([experiment.experiment_id], "attributes.run_name = 'short'")
    assert parent.data.tags["mlflow.note.content"].startswith("Very short trials.")
    (model,) = client.search_logged_models([experiment.experiment_id])
    assert model.name == f"short-{parent.data.tags['tune.winner']}"
    assert f"winner {parent.data.tags['tune.winner']}" in output
    bucket = open_object_store(f"s3://{BUCKET}/mlflow")
    below = bucket.filesystem.get_file_info(FileSelector(bucket.root, recursive=True))
    names = [file.path for file in below]
    assert any(model.model_id in name and name.endswith("/past.json") for name in names)
    assert any(parent.info.run_id in name and name.endswith("sweep.yaml") for name in names)
