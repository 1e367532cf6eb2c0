"""`tune delete` and `tune mv`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from results.sweep_folder.folder import read_state
from results.sweep_folder.lock import acquire_lock
from results.sweep_folder.relocation import delete_folder
from results.tracking.mlflow.client import connect, runs_of_sweep
from tests.cli.conftest import Tune


def test_delete_removes_the_folder_and_leaves_the_others(tune: Tune) -> None:
    gone, kept = tune.sweep("mine"), tune.sweep("other")
    tune("delete", "mine", "--yes")
    assert not gone.root.exists()
    assert [paths.name for paths in kept.storage.sweeps()] == ["other"]
    assert "no sweep 'mine'" in tune.refused("delete", "mine", "--yes")


def test_delete_asks(tune: Tune) -> None:
    paths = tune.sweep("mine")
    assert "--yes" in tune.refused("delete", "mine")
    assert paths.is_sweep


def test_running_sweep_is_neither_deleted_nor_renamed(tune: Tune) -> None:
    paths = tune.sweep("mine")
    with acquire_lock(paths.lock):
        for command in (("delete", "mine", "--yes"), ("mv", "mine", "new")):
            assert f"process {os.getpid()} on " in tune.refused(*command)
    assert paths.is_sweep


def test_folder_that_only_looks_like_a_sweep_is_kept(tune: Tune) -> None:
    project = tune.cwd / "project"
    project.mkdir()
    (project / "sweep.yaml").write_text("name: mine\n")
    assert "state.json" in tune("delete", project, "--yes", code=3).err
    assert (project / "sweep.yaml").exists()


def test_link_is_not_deleted(tune: Tune) -> None:
    paths = tune.sweep("mine")
    paths.storage.sweep("link").root.symlink_to(paths.root)
    assert "a link to" in tune.refused("delete", "link", "--yes", "--storage", "sweeps")
    assert paths.is_sweep


def test_deletion_that_was_killed_leaves_no_sweep(
    tune: Tune, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = tune.sweep("mine")
    with monkeypatch.context() as patched:
        patched.setattr("shutil.rmtree", lambda *_, **__: None)
        with pytest.raises(Exception, match="could be removed"):
            delete_folder(paths.root)
    assert "no sweeps in" in tune("ls").out
    tune.sweep("other")
    tune("delete", "other", "--yes")
    assert list(Path("sweeps").iterdir()) == []


def test_delete_removes_runs_of_mlflow_if_told(tune: Tune) -> None:
    paths = tune.sweep("mine", tracking={"name": "mlflow"})
    tune("sync", "mine")
    uri, key = f"sqlite:///{paths.storage.tracking_db}", read_state(paths).key
    runs = list(runs_of_sweep(connect(uri), key))
    assert runs
    assert f"deleted {len(runs)} runs" in tune("delete", "mine", "--yes", "--mlflow").out
    assert list(runs_of_sweep(connect(uri), key)) == []


def test_renamed_sweep_resumes_and_keeps_its_runs(tune: Tune) -> None:
    paths = tune.sweep("mine", tracking={"name": "mlflow"})
    tune("sync", "mine")
    uri, key = f"sqlite:///{paths.storage.tracking_db}", read_state(paths).key
    before = {run.info.run_id for run in runs_of_sweep(connect(uri), key)}
    winner = tune.best("mine")["trial"]
    tune("mv", "mine", "new")
    assert not paths.root.exists()
    assert tune.best("new")["trial"] == winner
    tune("resume", "new")
    tune("sync", "new")
    assert {run.info.run_id for run in runs_of_sweep(connect(uri), key)} == before


@pytest.mark.parametrize(
    ("new", "word"), [("other", "exists"), ("../out", "NEW"), (".hidden", "NEW")]
)
def test_name_that_cannot_be_taken_is_refused(tune: Tune, new: str, word: str) -> None:
    paths = tune.sweep("mine")
    tune.sweep("other")
    assert word in tune.refused("mv", "mine", new)
    assert paths.is_sweep
