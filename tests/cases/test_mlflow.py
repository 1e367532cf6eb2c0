"""MLflow gets every trial once, whatever names, paths, kills and copies there are."""

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlflow.utils.validation import _validate_metric_name, _validate_tag_name

from results.paths import SweepPaths
from results.records.trial import Report, TrialRecord, TrialState, write_trial
from results.tracking import Delivery, Ending, SweepFacts, mlflow_tracker
from results.tracking.mlflow.client import connect, mlflow_name
from results.tracking.mlflow.database import prepare_database, sqlite_file, sqlite_uri
from search_spaces.errors import UserError
from tests.reports import append_report
from tests.results.tracking.tracked import WAIT_S, runs, trial, write

ODD = ["p<0.05", "p>0.05", "train//loss", "", "/", "../x", "m" * 300, "m" * 299 + "n", "@"]


@pytest.fixture
def sweep(tmp_path: Path) -> SweepPaths:
    """An empty sweep folder."""
    return SweepPaths(tmp_path / "digits-1")


def tracker(sweep: SweepPaths, key: str = "key") -> Delivery:
    uri = sqlite_uri(sweep.storage.tracking_db)
    facts = SweepFacts(key, "llm-1", {"a@b": "1"}, {}, description="d" * 9000)
    return mlflow_tracker(sweep, uri, sweep.storage.artifacts, "llm", facts)


def deliver(sweep: SweepPaths, key: str = "key") -> None:
    assert tracker(sweep, key).close(Ending("FINISHED", {}), WAIT_S) is None


@given(st.lists(st.text() | st.sampled_from(ODD), unique=True))
def test_different_names_stay_different_and_mlflow_takes_them(names: list[str]) -> None:
    found = [mlflow_name(name) for name in names]
    assert len(set(found)) == len(names)
    for name in found:
        _validate_metric_name(name)
        _validate_tag_name(name)
        assert len(name) <= 250


@given(st.text())
def test_changed_name_cannot_be_the_name_of_another_metric(name: str) -> None:
    assert mlflow_name(mlflow_name(name)) == mlflow_name(name) or mlflow_name(name) != name


@pytest.mark.parametrize("name", ["loss", "eval/loss", "p.1_2-3:4 5", "ä"])
def test_name_that_mlflow_takes_stays(name: str) -> None:
    assert mlflow_name(name) == name


def test_odd_names_and_long_values_cost_nothing_else(tmp_path: Path) -> None:
    sweep = SweepPaths(tmp_path / "ready? 1%23" / "a#b" / "digits-1")
    config = {**dict.fromkeys(ODD, 1), "long": "x" * 7000, "text": "a\0b"}
    write_trial(sweep.trial("t0000"), trial(0).model_copy(update={"config": config}))
    metrics = {name: float(i) for i, name in enumerate(ODD)} | {"loss": 0.5}
    report = Report(step=1, metrics=metrics, attempt=1, time=1e9)
    append_report(sweep.trial("t0000"), report)
    deliver(sweep)
    assert [path.name for path in tmp_path.iterdir()] == ["ready? 1%23"]
    run = runs(sqlite_uri(sweep.storage.tracking_db), "key")["t0000"]
    assert run.data.metrics == {mlflow_name(name): value for name, value in metrics.items()}
    assert {mlflow_name(name) for name in ODD} < run.data.params.keys()
    assert run.data.params["long"].endswith("x…")


def test_artifacts_are_in_a_storage_with_an_odd_name(tmp_path: Path) -> None:
    sweep = SweepPaths(tmp_path / "a?b#c%20" / "digits-1")
    uri, root = sqlite_uri(sweep.storage.tracking_db), sweep.storage.artifacts
    facts = SweepFacts("key", "llm-1", {}, {}, {"sweep.yaml": "name: llm\n"})
    made = mlflow_tracker(sweep, uri, root, "llm", facts)
    assert made.close(Ending("FINISHED", {}), WAIT_S) is None
    place = unquote(runs(uri, "key")["llm-1"].info.artifact_uri.removeprefix("file://"))
    assert (Path(place) / "sweep.yaml").read_text() == "name: llm\n"
    assert Path(place).is_relative_to(root)


@given(st.text(st.characters(exclude_characters="\0/", exclude_categories=["Cs"]), min_size=1))
def test_address_of_a_file_names_that_file(name: str) -> None:
    file = Path("/storage") / name / "mlflow.db"
    assert sqlite_file(sqlite_uri(file)) == file


def test_what_mlflow_refuses_is_left_out_by_name(
    sweep: SweepPaths, caplog: pytest.LogCaptureFixture
) -> None:
    write(sweep, trial(0))
    for step, time in ((1, 1e9), (2, -5.0), (3, 1e9)):  # MLflow has no time before 1970
        report = Report(step=step, metrics={"loss": 0.5}, attempt=1, time=time)
        append_report(sweep.trial("t0000"), report)
    deliver(sweep)
    with closing(sqlite3.connect(sweep.storage.tracking_db)) as db:
        steps = db.execute("select step from metrics order by step").fetchall()
    assert steps == [(1,), (3,)]
    assert [r.getMessage() for r in caplog.records if "refuses loss" in r.getMessage()]


DELIVER = """
import sys
from pathlib import Path
from tests.cases.test_mlflow import deliver
from results.paths import SweepPaths
deliver(SweepPaths(Path(sys.argv[1])), sys.argv[2])
"""


def delivering(sweep: SweepPaths, key: str, **env: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", DELIVER, str(sweep.root), key]
    root = Path(__file__).parents[2]
    return subprocess.Popen(command, cwd=root, env={**os.environ, **env})


@pytest.mark.parametrize("point", ["migrated", "renamed"])
def test_killed_first_delivery_leaves_a_whole_database_or_none(
    sweep: SweepPaths, point: str
) -> None:
    write(sweep, trial(0, TrialState.COMPLETED), 1)
    killed = delivering(sweep, "key", TUNE_CRASH_AT=f"mlflow.db:{point}")
    assert killed.wait(WAIT_S) == -signal.SIGKILL
    assert sweep.storage.tracking_db.exists() is (point == "renamed")
    deliver(sweep)
    assert runs(sqlite_uri(sweep.storage.tracking_db), "key").keys() == {"llm-1", "t0000"}
    assert not [*sweep.storage.root.glob(".*.new*")]


def test_database_of_a_newer_version_is_left_as_it_is(sweep: SweepPaths) -> None:
    write(sweep, trial(0, TrialState.COMPLETED), 1)
    sweep.spec.write_text("name: digits-1\n")
    prepare_database(uri := sqlite_uri(sweep.storage.tracking_db))
    with closing(sqlite3.connect(sweep.storage.tracking_db)) as db, db:
        db.execute("update alembic_version set version_num = 'ffffffffffff'")
    before = sweep.storage.tracking_db.read_bytes()
    with pytest.raises(UserError, match=r"another version of MLflow made it .* use that one"):
        prepare_database(uri)
    assert sweep.storage.tracking_db.read_bytes() == before
    assert not [*sweep.storage.root.glob(".*.new*")]


def test_two_first_deliveries_at_once_make_one_database(tmp_path: Path) -> None:
    sweeps = [SweepPaths(tmp_path / name) for name in ("a", "b")]
    for one in sweeps:
        write(one, trial(0, TrialState.COMPLETED), 1)
    started = [delivering(one, one.name) for one in sweeps]
    assert [process.wait(WAIT_S) for process in started] == [0, 0]
    for one in sweeps:
        found = runs(sqlite_uri(one.storage.tracking_db), one.name)
        assert found.keys() == {"llm-1", "t0000"}


def cut_off(database: Path) -> None:
    """Leave the tables of the newest version under the number of an older one, as a kill does."""
    with closing(sqlite3.connect(database)) as db, db:
        db.execute("update alembic_version set version_num = 'c3d6457b6d8a'")


def cut_short(database: Path) -> None:
    os.truncate(database, 3 * 4096)


def overwritten(database: Path) -> None:
    database.write_bytes(b"no database\n" * 1000)
    database.with_name("mlflow.db-journal").write_bytes(b"of the one before")


@pytest.mark.parametrize("damage", [cut_off, cut_short, overwritten])
def test_unreadable_database_of_a_storage_is_set_aside_and_filled_again(
    sweep: SweepPaths, damage: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    write(sweep, trial(0, TrialState.COMPLETED), 1)
    sweep.spec.write_text("name: digits-1\n")
    database = sweep.storage.tracking_db
    prepare_database(sqlite_uri(database))
    damage(database)
    deliver(sweep)
    assert runs(sqlite_uri(database), "key").keys() == {"llm-1", "t0000"}
    assert "tune sync NAME, with digits-1" in caplog.text
    assert database.with_name("mlflow.db.damaged").exists()
    assert not database.with_name("mlflow.db-journal").exists()


def test_database_that_is_no_storages_is_never_renamed(tmp_path: Path) -> None:
    file = tmp_path / "mlflow.db"
    file.write_bytes(b"somebody's file\n" * 1000)
    prepare_database(sqlite_uri(file))
    assert [path.name for path in tmp_path.glob("[!.]*")] == ["mlflow.db"]
    with pytest.raises(Exception, match="not a database"):
        connect(sqlite_uri(file))


def test_trial_of_a_folder_that_was_set_back_has_a_run_of_its_own(sweep: SweepPaths) -> None:
    before = trial(0, TrialState.COMPLETED)
    write(sweep, before, 1, 2)
    deliver(sweep)
    sweep.trial("t0000").reports.unlink()
    sweep.delivered.unlink()
    again = TrialRecord.model_validate(
        {**before.model_dump(), "created": before.created + 1, "params": {"optim.lr": 0.7}}
    )
    write(sweep, again, 1)
    deliver(sweep)
    run = runs(sqlite_uri(sweep.storage.tracking_db), "key")["t0000"]
    assert run.data.params["optim.lr"] == "0.7"
