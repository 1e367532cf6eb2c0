"""`tune backup` and `tune restore`: a sweep is lost with its MLflow database, and continues."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
from pathlib import Path
from typing import Any

import pytest

from results.paths import SweepPaths
from results.records.trial import Report, TrialState, read_reports, read_trials
from results.storage.fencing import NullFence
from results.sweep_folder.folder import record_session_time
from search_spaces.spec.sweep import SweepSpec
from tests.cli.conftest import Tune
from tests.cli.trained import DIGITS
from tests.threads import one_thread
from tests.tuning.simulate import new_sweep, open_run
from tests.tuning.trained import DirectChannel, train_all
from trainables.job import Answer
from trainables.launch.run_trial import run_local
from tuning.controller.tracking.observer import deliver

TRACKED = {
    **DIGITS,
    "tracking": {"name": "mlflow"},
    "checkpoint": {"every": 1, "keep": 3},
    "scheduler": {"name": "none", "max_t": 4},
}
DELIVERY_S = 200.0


class Killed(BaseException):
    """The machine is lost."""


class DyingChannel(DirectChannel):
    """The machine is lost after the third report."""

    def report(self, report: Report) -> Answer:
        answer = super().report(report)
        if report.step == 3:
            raise Killed
        return answer


def curves(paths: SweepPaths) -> dict[str, list[tuple[int, dict[str, float]]]]:
    """Curves of all trials, without metrics that measure time."""
    return {
        r.id: [
            (p.step, {k: v for k, v in p.metrics.items() if not k.endswith("_per_second")})
            for p in read_reports(paths.trial(r.id), r.end_step)
        ]
        for r in read_trials(paths)
    }


def mlflow_runs(paths: SweepPaths) -> dict[str, dict[str, Any]]:
    """Name of a run to its parameters, tags, status and metrics, without ids."""
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{paths.storage.tracking_db}")
    experiments = [e.experiment_id for e in client.search_experiments()]
    found = {}
    for run in client.search_runs(experiments):
        histories = {
            key: client.get_metric_history(run.info.run_id, key) for key in run.data.metrics
        }
        found[run.info.run_name] = {
            "status": run.info.status,
            "params": run.data.params,
            "tags": {k: v for k, v in run.data.tags.items() if k != "mlflow.parentRunId"},
            "metrics": {k: [(m.step, m.value) for m in h] for k, h in histories.items()},
            "artifacts": sorted(f.path for f in client.list_artifacts(run.info.run_id)),
        }
    return found


def train_half(paths: SweepPaths, spec: SweepSpec) -> None:
    """Train the first trial, and the second one until its machine is lost."""
    run = open_run(paths.root, spec)
    with record_session_time(paths, NullFence()), one_thread():
        for channel in (DirectChannel, DyingChannel):
            job = run.next_trial()
            assert job is not None
            try:
                run_local(job, channel(run, job.trial_id))
            except Killed:
                return
            run.on_ended(job.trial_id)
    raise AssertionError


@pytest.mark.slow
def test_sweep_and_its_runs_are_lost_restored_and_continued(tune: Tune) -> None:
    spec = SweepSpec.model_validate(TRACKED)
    whole = new_sweep(spec, tune.cwd / "elsewhere")
    train_all(open_run(whole.root, spec))
    paths = new_sweep(spec)
    train_half(paths, spec)
    assert deliver(spec, paths, DELIVERY_S) is None
    add_note(paths, "t0000", "look at this one")
    runs, trials, before = mlflow_runs(paths), read_trials(paths), curves(paths)

    output = tune("backup", "mine", "backups").out
    assert "restore it with: tune restore backups/mine" in output
    shutil.rmtree(paths.storage.root)
    new = tune.cwd / "new"  # MLflow keeps connections to a file that was deleted
    restored = tune("restore", "backups/mine", "--storage", new).out
    paths = SweepPaths(new / "mine")
    assert f"continue it with: tune resume {paths.root}" in restored
    assert read_trials(paths) == trials
    assert curves(paths) == before
    assert mlflow_runs(paths) == runs
    assert runs["t0000"]["tags"]["mlflow.note.content"] == "look at this one"

    train_all(open_run(paths.root, spec))
    assert curves(paths) == curves(whole)
    second = read_trials(paths)[1]
    assert (second.state, len(second.attempts)) == (TrialState.COMPLETED, 2)
    again = [r.step for r in read_reports(paths.trial("t0001")) if r.attempt == 2]
    assert again[0] > 1, "it began from a checkpoint"
    assert tune.refused("restore", "backups/mine", "--storage", new).startswith(
        f"{paths.root} exists; continue it"
    )


def add_note(paths: SweepPaths, run: str, note: str) -> None:
    """What a person writes into the description of a run."""
    from mlflow import MlflowClient

    with sqlite3.connect(paths.storage.tracking_db) as db:
        ((run_id,),) = db.execute("select run_uuid from runs where name = ?", (run,)).fetchall()
    client = MlflowClient(f"sqlite:///{paths.storage.tracking_db}")
    client.set_tag(run_id, "mlflow.note.content", note)


def test_folder_that_may_not_be_written_is_saved(
    tune: Tune, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = tune.sweep("mine")
    monkeypatch.setattr("os.access", lambda path, mode: Path(path) != paths.root)
    before = sorted(paths.root.iterdir())
    tune("backup", "mine", "backups")
    assert sorted(paths.root.iterdir()) == before


def test_anybody_of_a_shared_storage_takes_a_backup(tune: Tune) -> None:
    root = tune.sweep("mine").root
    root.chmod(0o2770)
    tune("backup", "mine", "backups")
    assert (root / ".backup.guard").stat().st_mode & 0o777 == 0o660


def test_backup_names_what_it_cannot_do(tune: Tune) -> None:
    paths = tune.sweep("mine")
    inside = paths.root / "backups"
    assert tune.refused("backup", "mine", inside).endswith("name another place\n")
    assert (
        "backup 'yesterday'"
        in (
            tune("backup", "mine", "far"),
            tune.refused("restore", "far/mine", "--at", "yesterday"),
        )[1]
    )
    assert tune.refused("restore", "far") == (
        f"file://{tune.cwd}/far: holds no backup; the address is TARGET/NAME\n"
    )
    assert "no bucket" in tune.refused("backup", "mine", "s3://")
    (tune.cwd / "mirror" / "records").mkdir(parents=True)
    (tune.cwd / "mirror" / "records" / "sweep.yaml").write_text("name: mine\n")
    assert "is a mirror, no backup; tune resume mirror" in tune.refused("restore", "mirror")


def test_damaged_sweep_is_saved_as_it_is(tune: Tune) -> None:
    paths = tune.sweep("mine")
    paths.trial("t0001").record.write_text("{")
    damaged = tune("backup", "mine", "far", code=3)
    assert "t0001" in damaged.err
    shutil.rmtree(paths.root)
    tune("restore", "far/mine")
    assert paths.trial("t0001").record.read_text() == "{"
    assert "t0001" in tune("show", "mine", code=3).err


def test_backup_of_a_folder_on_a_read_only_file_system(tune: Tune) -> None:
    root = str(tune.sweep("mine").root)
    if subprocess.run(["mount", "--bind", root, root], capture_output=True).returncode:
        pytest.skip("may not mount")
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", root], check=True)
        assert "restore it with: tune restore far/mine" in tune("backup", "mine", "far").out
    finally:
        subprocess.run(["umount", "-l", root], check=True)


def test_backup_of_a_running_sweep(tune: Tune) -> None:
    paths, run = tune.unfinished()
    tune("backup", "mine", "far")
    reports = read_reports(paths.trial("t0000"))
    run.lifecycle.release()
    shutil.rmtree(paths.root)
    tune("restore", "far/mine")
    assert read_reports(paths.trial("t0000")) == reports
