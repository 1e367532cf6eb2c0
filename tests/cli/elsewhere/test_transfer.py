"""`tune sync` sends runs to MLflow; `tune fetch` downloads checkpoints from the mirror."""

import json
import os
import shutil
import socket
import sqlite3

import pytest

from results.sweep_folder.copies.checkpoint_mirror import OWNER, MirrorLocation, TrialMirror
from results.sweep_folder.lock import acquire_lock
from tests.cli.conftest import Tune, add_checkpoint
from tests.results.tracking.servers import free_port
from tuning.cli.elsewhere import transfer


def test_sync_delivers_once(tune: Tune, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = tune.sweep(tracking={"name": "mlflow"}, budget={"trials": 2})
    dead = f"http://127.0.0.1:{free_port()}"
    with monkeypatch.context() as patch:
        patch.setenv("MLFLOW_TRACKING_URI", dead)
        patch.setattr(transfer, "DELIVERY_TIMEOUT_S", 0.5)
        output = tune.refused("sync", "simulated")
    assert output.startswith(f"MLflow at {dead}: 2 trials not delivered yet")
    assert output.endswith("; try again: tune sync simulated\n")
    for _ in range(2):
        assert "simulated is delivered" in tune("sync", "simulated").out
    with sqlite3.connect(tune.cwd / "sweeps" / "mlflow.db") as db:
        runs = db.execute("select name from runs order by name").fetchall()
        sent = db.execute("select count(*) from metrics where key = 'loss'").fetchone()[0]
    assert runs == [("simulated",), ("t0000",), ("t0001",)]
    reports = [paths.trial(t).reports.read_text() for t in paths.trial_ids()]
    assert sent == sum(text.count("\n") for text in reports)


def test_sync_and_ui_name_damage(tune: Tune) -> None:
    paths = tune.sweep(tracking={"name": "mlflow"}, budget={"trials": 2})
    paths.trial("t0001").reports.unlink()
    words = "simulated: incomplete: t0001/reports.jsonl has no report"
    assert words in tune("sync", "simulated", code=3).err
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert words in tune("ui", "simulated", "--port", str(taken.getsockname()[1]), code=2).err


def test_sync_refuses_an_untracked_or_a_running_sweep(tune: Tune) -> None:
    paths = tune.sweep()
    assert "tracking: {name: none}" in tune.refused("sync", "simulated")
    tune.sweep("other", tracking={"name": "mlflow"}, done=False)
    with acquire_lock(paths.root.with_name("other") / "owner.lock"):
        assert f"driven by process {os.getpid()}" in tune.refused("sync", "other")


def test_fetch_downloads_a_checkpoint(tune: Tune) -> None:
    address = (tune.cwd / "far").as_uri()
    paths = tune.sweep(checkpoint={"mirror": address})
    folder = add_checkpoint(paths, "t0001", 3)
    place = MirrorLocation(address, "simulated", "0123456789abcdef")
    place.open().put(OWNER, json.dumps({"token": place.token}).encode())
    TrialMirror(place, "t0001", 1).send(paths.trial("t0001"), 3)
    shutil.rmtree(folder)
    assert tune("fetch", "simulated", "t0001", "t0000").lines == [
        ["t0001", "step", "3"],
        ["t0000", "nothing", "newer"],
    ]
    assert (folder / "model.safetensors").read_bytes() == b"weights"


def test_fetch_refuses_a_sweep_without_a_mirror(tune: Tune) -> None:
    tune.sweep(budget={"trials": 1})
    assert "has no mirror in object storage (checkpoint.mirror)" in tune.refused(
        "fetch", "simulated"
    )
    assert "no trial 't9'" in tune.refused("fetch", "simulated", "t9")
