"""The runs of a sweep in a real SQLite store of MLflow."""

import asyncio
import gc
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, unquote

import pytest
from mlflow import MlflowClient
from mlflow.store.entities import PagedList

from results.paths import SweepPaths
from results.records import environment
from results.records.environment import Environment
from results.records.trial import InheritedWeights, TrialRecord, TrialState
from results.records.worker_samples import sample_line
from results.tracking import (
    Ending,
    SweepFacts,
    comparison_url,
    curves_url,
    experiment_url,
    mlflow_tracker,
    ui_command,
    ui_environment,
)
from results.tracking.extras import MLFLOW_NAMES, Extras, read_extras, read_winner
from results.tracking.mlflow.client import connect, mlflow_name, runs_of_sweep
from results.tracking.mlflow.own_origin import with_short_addresses
from results.tracking.mlflow.pages import params_first, store_view
from results.tracking.mlflow.run_store import StoredRun
from search_spaces.errors import UserError
from search_spaces.spec.budget import PricesSpec
from search_spaces.spec.sweep import SweepSpec
from tests.results.tracking.servers import failing_server, no_server
from tests.results.tracking.tracked import (
    WAIT_S,
    deliver,
    open_tracker,
    points,
    runs,
    trial,
    uri_of,
    write,
)
from tests.results.written import write_checkpoint

SPEC = SweepSpec.model_validate(
    {
        "name": "llm-1",
        "trainable": "digits",
        "metric": "eval/loss@2",
        "mode": "min",
        "space": {"learning_rate": {"uniform": [0, 1]}},
        "scheduler": {"name": "none"},
        "budget": {"trials": 3},
        "tracking": {"log_model": "winner"},
    }
)
PRICES = PricesSpec(cpu_hour=1800.0)


def test_resumed_sweep_continues_its_runs(storage: Path, sweep: SweepPaths) -> None:
    first = open_tracker(sweep, uri_of(storage), "s/resumed")
    for number in range(3):
        write(sweep, trial(number), 1, 2)
        first.changed(f"t{number:04d}", reported=True)
    write(sweep, trial(0, TrialState.COMPLETED))
    write(sweep, trial(1, TrialState.STOPPED))
    for trial_id in ("t0000", "t0001"):
        first.changed(trial_id, reported=False)
    assert first.close(Ending("KILLED", {"best": 0.2}), WAIT_S) is None
    before = runs(uri_of(storage), "s/resumed")
    ended = {name: (run.info.status, run.data.tags.get("stopped")) for name, run in before.items()}
    assert ended == {
        "llm-1": ("KILLED", None),
        "t0000": ("FINISHED", "false"),
        "t0001": ("FINISHED", "true"),
        "t0002": ("KILLED", "false"),
    }

    write(sweep, trial(2, attempts=2), 1, attempt=2)  # as before
    write(sweep, trial(2, attempts=2), 2, 3, attempt=2, plus=0.5)
    second = open_tracker(sweep, uri_of(storage), "s/resumed")
    second.changed("t0002", reported=True)
    write(sweep, trial(2, TrialState.FAILED, attempts=2))
    second.changed("t0002", reported=False)
    assert second.close(Ending("FINISHED", {"best": 0.3}), WAIT_S) is None

    after = runs(uri_of(storage), "s/resumed")
    ids = [{name: run.info.run_id for name, run in found.items()} for found in (before, after)]
    assert ids[0] == ids[1]
    assert after["llm-1"].info.status == "FINISHED"
    assert after["t0002"].info.status == "FAILED"
    assert after["t0002"].data.tags["tune.attempt"] == "2"
    assert after["t0002"].data.tags["mlflow.parentRunId"] == after["llm-1"].info.run_id
    assert points(storage, after["t0002"]) == [(1, 0.1), (2, 0.2), (2, 0.7), (3, 0.8)]


def test_population_is_stored_with_the_parameters_of_its_end(
    storage: Path, sweep: SweepPaths
) -> None:
    facts = SweepFacts("s/pbt", "llm-1", {}, {}, started=1e9, is_population=True)
    for state, rate in ((TrialState.PAUSED, 0.1), (TrialState.COMPLETED, 0.3)):
        params = {"optim.lr": rate}
        write(sweep, trial(1, state).model_copy(update={"params": params}), 1)
        tracker = mlflow_tracker(sweep, uri_of(storage), sweep.root / "artifacts", "llm", facts)
        assert tracker.close(Ending("FINISHED", {}, 2e9), WAIT_S) is None
    found = runs(uri_of(storage), "s/pbt")
    assert found["t0001"].data.params["optim.lr"] == "0.3"
    info = found["llm-1"].info
    assert (info.start_time, info.end_time) == (1_000_000_000_000, 2_000_000_000_000)


def test_points_of_trials_that_have_ended_are_not_kept(storage: Path, sweep: SweepPaths) -> None:
    for number, state in enumerate((TrialState.COMPLETED, TrialState.RUNNING)):
        write(sweep, trial(number, state), 1, 2)
    tracker = open_tracker(sweep, uri_of(storage), "s/memory")
    assert tracker.deliver_pending()
    assert sum(type(run) is StoredRun and bool(run.sent) for run in gc.get_objects()) == 1
    write(sweep, trial(0, TrialState.COMPLETED, attempts=2), 3, attempt=2)
    tracker.changed("t0000", reported=False)
    assert tracker.deliver_pending()
    found = runs(uri_of(storage), "s/memory")["t0000"]
    assert points(storage, found) == [(1, 0.1), (2, 0.2), (3, 0.3)]


def test_runs_are_found_in_more_experiments_than_mlflow_lists_by_default() -> None:
    class Store:
        def search_experiments(self, max_results: int = 1000) -> list[Any]:
            return [SimpleNamespace(experiment_id=str(n)) for n in range(1001)][:max_results]

        def search_runs(self, experiments: list[str], *_: Any, **__: Any) -> PagedList[str]:
            return PagedList(experiments, None)

    client: Any = Store()
    assert list(runs_of_sweep(client, "key"))[-1] == "1000"


def annotated(sweep: SweepPaths) -> TrialRecord:
    """A finished trial of two attempts, with the environment of both and inherited weights."""
    taken = InheritedWeights(step=1, donor="t0009", donor_step=4, before={}, after={})
    record = trial(0, TrialState.COMPLETED, attempts=2).model_copy(update={"lineage": (taken,)})
    write(sweep, record, 1, 2)
    files = sweep.trial(record.id)
    for attempt in (1, 2):
        ran = Environment(source={}, data="d" * 64, versions={"torch": str(attempt)}, hardware={})
        environment.write(files, attempt, ran)
        values = {"system/memory_mb": 9.0 * attempt}
        lines = sample_line(attempt, 1e9 + attempt, values) + '{"step": Infinity, "time": 1}\n'
        files.samples(attempt).write_text(lines + '{"torn')
    of_gpu = {"system/gpu_percent": 80.0, "system/seconds_data": 2.0}
    line = sample_line(2, 1e9 + 2, of_gpu, place={"node": "a", "gpu": "3"})
    files.samples(2, 1).write_text(line)
    files.checkpoint(2).mkdir(parents=True)
    (files.checkpoint(2) / "lineage.json").write_text('{"init": "abc"}')
    return record


def test_extras_of_a_finished_trial_are_stored_once(storage: Path, sweep: SweepPaths) -> None:
    annotated(sweep)
    facts = SweepFacts("s/facts", "llm-1", {}, {}, {"sweep.yaml": "name: llm\n"})
    for _ in range(2):  # the second session stores nothing twice
        sweep.delivered.unlink(missing_ok=True)
        tracker = mlflow_tracker(sweep, uri_of(storage), sweep.root / "artifacts", "llm", facts)
        assert tracker.close(Ending("FINISHED", {}), WAIT_S) is None
    found = runs(uri_of(storage), "s/facts")
    tags = found["t0000"].data.tags
    assert tags["tune.version.torch"] == "2"
    assert (tags["tune.data"], tags["tune.init"]) == ("d" * 64, "abc")
    assert tags["tune.donors"] == "t0009 at 4"
    with sqlite3.connect(storage / "mlflow.db") as db:
        query = "select key, step, value from metrics where run_uuid = ? and key like 'system/%'"
        samples = db.execute(query, (found["t0000"].info.run_id,)).fetchall()
    assert sorted(samples) == [
        ("system/rank_1/gpu_3_utilization_percentage", 2, 80.0),
        ("system/rank_1/seconds_data", 2, 2.0),
        ("system/system_memory_usage_megabytes", 1, 9.0),
        ("system/system_memory_usage_megabytes", 2, 18.0),
    ]
    assert _artifact(found["llm-1"], "sweep.yaml") == "name: llm\n"
    history = json.loads(_artifact(found["t0000"], "attempts.json"))
    assert [a["number"] for a in history] == [1, 2]


def _artifact(run: Any, name: str) -> str:
    return (Path(unquote(run.info.artifact_uri.removeprefix("file://"))) / name).read_text()


def test_values_have_the_names_of_mlflow_itself() -> None:
    """Those that its monitors write for this machine, and for the GPU 0."""
    import mlflow.system_metrics.metrics as monitors

    code = "".join(p.read_text() for p in Path(monitors.__file__).parent.glob("*.py"))
    names = {name for name in MLFLOW_NAMES.values() if "celsius" not in name}
    assert not [name for name in names if name.replace("{gpu}", "{i}") not in code]


def test_winner_is_logged_as_a_model_once(storage: Path, sweep: SweepPaths) -> None:
    record = trial(0, TrialState.COMPLETED)
    held = record.attempts[0].model_copy(update={"cpus": 2.0})
    write(sweep, record.model_copy(update={"attempts": (held,)}), 1, 2)
    write_checkpoint(sweep.trial("t0000"), 2, {"model.safetensors": "weights", "rng_0.json": "{}"})
    sweep.spec.write_text(SPEC.model_dump_json())
    for status in ("KILLED", "FINISHED", "FINISHED"):
        tracker = mlflow_tracker(
            *(sweep, uri_of(storage), sweep.root / "artifacts", "llm"),
            SweepFacts("s/model", "llm-1", {}, {}, prices=PRICES, description="For the *docs*."),
            winner=partial(read_winner, sweep, SPEC),
        )
        assert tracker.close(Ending(status, {}), WAIT_S) is None
        found = runs(uri_of(storage), "s/model")
        if status == "KILLED":
            assert found["t0000"].outputs.model_outputs == []
    ((one,), (same,)) = (found[n].outputs.model_outputs for n in ("t0000", "llm-1"))
    assert one.model_id == same.model_id
    model = MlflowClient(uri_of(storage)).get_logged_model(one.model_id)
    assert (model.name, model.tags["tune.step"]) == ("digits-1-t0000", "2")
    folder = Path(unquote(model.artifact_location.removeprefix("file://")))
    assert [p.name for p in folder.iterdir()] == ["model.safetensors"]
    assert (folder / "model.safetensors").read_text() == "weights"
    assert found["t0000"].data.metrics["tune/cost"] == pytest.approx(60.0)  # a minute
    notes = {name: run.data.tags["mlflow.note.content"] for name, run in found.items()}
    assert notes == {
        "llm-1": "For the *docs*.",
        "t0000": "Trial of sweep llm-1. Logs: `tune logs llm-1 t0000`",
    }


def test_view_has_the_important_parameters_first(storage: Path, sweep: SweepPaths) -> None:
    names = ["width", "model.lr", "depth", "decay"]
    assert params_first(names, ["depth", "gone"]) == ["depth", "model.lr", "width", "decay"]
    write(sweep, trial(0, TrialState.COMPLETED), 1)
    deliver(sweep, uri_of(storage), "s/view")
    asked = uri_of(storage), "llm", "s/view", ["eval/loss@2"], ["optim.lr"]
    key = store_view(*asked, ascending=True)
    assert key == store_view(*asked, ascending=True)
    experiment = MlflowClient(uri_of(storage)).get_experiment_by_name("llm")
    assert experiment is not None
    view = json.loads(experiment.tags[f"mlflow.sharedViewState.{key}"])
    metric = f"metrics.`{mlflow_name('eval/loss@2')}`"
    assert view["selectedColumns"][:2] == [metric, "params.`optim.lr`"]
    assert view["orderByKey"] == metric
    assert view["compareRunCharts"][0]["selectedParams"] == ["optim.lr"]
    assert experiment_url("http://h", uri_of(storage), "llm", key).endswith(f"ShareKey={key}")
    assert store_view(uri_of(storage), "other", *asked[2:], ascending=True) is None


def test_database_of_a_shared_storage_is_its_groups(tmp_path: Path) -> None:
    tmp_path.chmod(0o2770)
    connect(f"sqlite:///{tmp_path}/mlflow.db")
    assert (tmp_path / "mlflow.db").stat().st_mode & 0o660 == 0o660 & ~_umask()


def _umask() -> int:
    before = os.umask(0o077)
    os.umask(before)
    return before


def test_trial_without_environment_has_no_extras(sweep: SweepPaths) -> None:
    record = trial(0, TrialState.COMPLETED)
    write(sweep, record, 1)
    assert read_extras(sweep.trial(record.id), record) == Extras()


def test_run_shows_the_trial_without_secrets(
    storage: Path, sweep: SweepPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_TOKEN", "canary-7f3a")
    record = trial(2, TrialState.STOPPED)
    config = {**record.config, "url": "http://me:word@host/", "text": "has canary-7f3a in it"}
    write(sweep, record.model_copy(update={"config": config}), 1)
    run = deliver(sweep, uri_of(storage), "s/says")["t0002"]
    assert run.info.start_time == 1_000_000_000_000
    assert run.info.end_time == 1_000_000_060_000
    assert run.data.tags["tune.seed"] == "2"
    assert run.data.tags["tune.reason"] == "stopped at rung 4"
    assert run.data.params["optim.lr"] == "0.2"
    assert run.data.params["optim.betas"] == "[0.9, 0.95]"
    assert len(run.data.params["note"]) == 6000
    assert run.data.params["url"] == "http://me:***@host/"
    assert run.data.params["text"] == "has *** in it"


def test_page_addresses_name_the_runs_and_the_metric(storage: Path, sweep: SweepPaths) -> None:
    for number in (1, 0):
        write(sweep, trial(number), 1)
    found = deliver(sweep, uri_of(storage), "s/pages")
    url = comparison_url("http://127.0.0.1:5000/", uri_of(storage), ["s/pages"])
    page, query = url.split("?")
    chosen, experiments = (part.split("=")[1] for part in query.split("&"))
    assert page == "http://127.0.0.1:5000/#/compare-runs"
    assert json.loads(unquote(chosen)) == [found[t].info.run_id for t in ("t0000", "t0001")]
    assert json.loads(unquote(experiments)) == [found["llm-1"].info.experiment_id]
    page, query = curves_url(url, "eval/loss@2").split("?")
    shown = parse_qs(query)
    assert page == "http://127.0.0.1:5000/#/metric"
    assert shown["runs"] == [unquote(chosen)]
    assert shown["metric"] == [f'"{mlflow_name("eval/loss@2")}"']
    assert experiment_url("http://h", uri_of(storage), "llm").startswith("http://h/#/experiments/")
    with pytest.raises(UserError, match="no runs of sweep 'other'"):
        comparison_url("http://127.0.0.1:5000", uri_of(storage), ["s/pages", "other"])


@pytest.mark.parametrize("server", [failing_server, no_server])
def test_server_that_is_not_one_of_mlflow_is_named(
    server: Callable[[], AbstractContextManager[str]],
) -> None:
    with server() as uri:
        with pytest.raises(UserError, match=f"^MLflow at {uri} .*; check tracking.uri$"):
            comparison_url(uri, uri, ["s/pages"])
        with pytest.raises(UserError, match=f"^MLflow at {uri} .*; check tracking.uri$"):
            experiment_url(uri, uri, "llm")


def test_ui_command_does_not_contain_the_password() -> None:
    uri = "postgresql://tune:secret@db/mlflow"
    command = ui_command(Path("/artifacts"), "127.0.0.1", 5000)
    assert command[1:5] == ["-P", "-m", "mlflow", "server"]
    assert command[command.index("--host") + 1] == "127.0.0.1"
    assert "secret" not in " ".join(command)
    assert ui_environment(uri)["MLFLOW_BACKEND_STORE_URI"] == uri


def test_short_address_leads_to_the_long_one() -> None:
    long = "/#/experiments/1/runs?name=</script>"
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def mlflow(scope: Any, receive: Any, send: Any) -> None:
        await send({"body": b"of MLflow"})

    app = with_short_addresses(mlflow, {"/runs": long})
    for path in ("/runs", "/"):
        asyncio.run(app({"type": "http", "path": path}, None, send))
    page, other = (message["body"] for message in sent if "body" in message)
    assert json.dumps(long).replace("<", "\\u003c") in page.decode()
    assert page.count(b"</script>") == 1
    assert other == b"of MLflow"


def test_delivery_prints_nothing(sweep: SweepPaths, tmp_path: Path) -> None:
    write(sweep, trial(0, TrialState.COMPLETED), 1)
    code = (
        "import sys; from pathlib import Path; from results.paths import SweepPaths\n"
        "from results.tracking import Ending, SweepFacts, mlflow_tracker\n"
        "facts = SweepFacts('k', 'n', {}, {})\n"
        "t = mlflow_tracker(SweepPaths(Path(sys.argv[2])), sys.argv[1], None, 'e', facts)\n"
        "sys.exit(t.close(Ending('FINISHED', {'best': 1.0}), 60))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, uri_of(tmp_path), str(sweep.root)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[4])},
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
