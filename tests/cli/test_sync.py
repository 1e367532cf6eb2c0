"""`tune sync` delivers a sweep to MLflow from its folder alone."""

import os
import sqlite3

import pytest

from tests.cli.conftest import Tune
from tests.results.servers import free_port
from tuning.cli.run import transfer
from tuning.controller.sweep_dir.lock import acquire_lock

pytestmark = pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy")  # MLflow's own


def test_what_a_sweep_could_not_deliver_is_delivered_once(
    tune: Tune, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = tune.sweep(tracking={"name": "mlflow"}, budget={"trials": 2})
    dead = f"http://127.0.0.1:{free_port()}"
    with monkeypatch.context() as patch:
        patch.setenv("MLFLOW_TRACKING_URI", dead)
        patch.setattr(transfer, "DELIVERY_TIMEOUT_S", 0.5)
        said = tune.refused("sync", "simulated")
    assert said.startswith(f"MLflow at {dead}: 2 trials not delivered yet")
    assert said.endswith("; try again: tune sync simulated\n")
    for _ in range(2):
        assert "simulated is delivered" in tune("sync", "simulated").out
    with sqlite3.connect(tune.cwd / "sweeps" / "mlflow.db") as db:
        runs = db.execute("select name from runs order by name").fetchall()
        sent = db.execute("select count(*) from metrics where key = 'loss'").fetchone()[0]
    assert runs == [("simulated",), ("t0000",), ("t0001",)]
    reports = [paths.trial(t).reports.read_text() for t in paths.trial_ids()]
    assert sent == sum(text.count("\n") for text in reports)


def test_refusals(tune: Tune) -> None:
    paths = tune.sweep()
    assert "tracking: {name: none}" in tune.refused("sync", "simulated")
    tune.sweep("other", tracking={"name": "mlflow"}, done=False)
    with acquire_lock(paths.root.with_name("other") / "owner.lock"):
        assert f"driven by process {os.getpid()}" in tune.refused("sync", "other")
