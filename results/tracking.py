"""The only file that talks to MLflow: a parent run per sweep, a child run per trial.

Runs are found again by their tags, so that a resumed sweep continues them. MLflow is imported in
the background thread that talks to it: neither its two seconds nor its failures reach training.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from results.background import Background, NullTracker, Tracker
from results.records import Report, TrialRecord, TrialState
from search_spaces.errors import UserError

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

__all__ = [
    "MLflowTracker",
    "NullTracker",
    "Tracker",
    "comparison_url",
    "experiment_url",
    "ui_command",
    "ui_environment",
]

SWEEP_TAG, TRIAL_TAG, PARENT_TAG = "tune.sweep", "tune.trial_id", "mlflow.parentRunId"

_QUIET = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}
_METRICS, _PARAMS = 1000, 100  # per log_batch: limits of MLflow's REST API
_KEY, _VALUE = 250, 6000  # characters of a name and of a parameter's value, likewise
_STATUS = {
    TrialState.COMPLETED: "FINISHED",
    TrialState.STOPPED: "KILLED",
    TrialState.FAILED: "FAILED",
    TrialState.PENDING: "KILLED",
    TrialState.RUNNING: "KILLED",
}


class MLflowTracker(Background):
    """A `Tracker` on an MLflow store or server.

    Args:
        uri: `sqlite:///…/mlflow.db`, another SQLAlchemy URI, or the http(s) address of a server.
        artifact_root: folder for a new experiment's artifacts; None leaves it to the server.
        experiment: its name; made when there is none.
        sweep_key: what makes the sweep unique in the store, for instance its folder.
    """

    def __init__(
        self, uri: str, artifact_root: Path | None, experiment: str, sweep_key: str
    ) -> None:
        def open_sink() -> _Sink:
            client = _client(uri)
            return _Sink(client, _experiment_id(client, experiment, artifact_root), sweep_key)

        super().__init__(open_sink, f"MLflow at {_shown(uri)}", urlsplit(uri).password or "")


def comparison_url(base: str, uri: str, sweep_key: str, limit: int = 100) -> str:
    """Address of MLflow's page that compares the runs of a sweep's trials.

    Args:
        base: of the server's pages, such as `http://127.0.0.1:5000`.
        uri: of the store.
        sweep_key: as given to `MLflowTracker`.
        limit: the page gets unreadable, and the address too long, with more runs than this; the
            first ones are compared.

    Raises:
        UserError: the store has no run of this sweep's trials.
    """
    client = _client(uri)
    experiments = [e.experiment_id for e in client.search_experiments()]
    found = list(_search(client, experiments, sweep_key))
    runs = sorted((r for r in found if TRIAL_TAG in r.data.tags), key=_trial_of)[:limit]
    if not runs:
        raise UserError(f"MLflow at {_shown(uri)} has no runs of sweep '{sweep_key}'")
    ids = quote(json.dumps([r.info.run_id for r in runs], separators=(",", ":")))
    of = quote(json.dumps(sorted({r.info.experiment_id for r in runs})))
    return f"{base.rstrip('/')}/#/compare-runs?runs={ids}&experiments={of}"


def experiment_url(base: str, uri: str, experiment: str) -> str:
    """Address of MLflow's page of an experiment; the start page when there is none."""
    found = _client(uri).get_experiment_by_name(experiment)
    page = f"/experiments/{found.experiment_id}/runs" if found else ""
    return f"{base.rstrip('/')}/#{page}"


def ui_command(artifact_root: Path, host: str, port: int) -> list[str]:
    """Command that serves MLflow's pages for a store that is no server itself.

    The store's address goes by `ui_environment`: it may hold a password, which a command line
    would show to every user of the machine. Only requests addressed to this host are answered.
    """
    hosts = ",".join(f"{name}:{port}" for name in dict.fromkeys([host, "localhost"]))
    where = ["--host", host, "--port", str(port), "--allowed-hosts", hosts, "--workers", "1"]
    artifacts = ["--default-artifact-root", artifact_root.absolute().as_uri()]
    return [sys.executable, "-m", "mlflow", "server", *where, *artifacts, "--no-serve-artifacts"]


def ui_environment(uri: str) -> dict[str, str]:
    """What `ui_command` needs in its environment, beside what is there."""
    quiet = {**_QUIET, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    return {**quiet, "MLFLOW_BACKEND_STORE_URI": uri}


@dataclass
class _Open:
    """A run that this session writes to: what it has already, so that nothing is sent twice."""

    id: str
    metrics: set[str] = field(default_factory=set)
    params: set[str] = field(default_factory=set)
    sent: set[tuple[str, int]] | None = None
    running: bool = True


class _Sink:
    """Synchronous side of `MLflowTracker`, in its thread."""

    def __init__(self, client: MlflowClient, experiment_id: str, sweep_key: str) -> None:
        self._client = client
        self._experiment = experiment_id
        self._key = sweep_key
        self._parent: _Open | None = None
        self._children: dict[str, _Open] = {}
        for run in _search(client, [experiment_id], sweep_key):
            trial = run.data.tags.get(TRIAL_TAG)
            known = _Open(run.info.run_id, set(run.data.metrics), set(run.data.params))
            known.running = run.info.status == "RUNNING"
            if trial is None:
                self._parent = known
            else:
                self._children[trial] = known

    def sweep_started(
        self, name: str, tags: Mapping[str, str], params: Mapping[str, object]
    ) -> None:
        self._parent = self._begin(self._parent, name, tags, time.time())
        self._log_params(self._parent, params)

    def trial_started(self, record: TrialRecord) -> None:
        tags = {TRIAL_TAG: record.id, "tune.attempt": str(len(record.attempts))}
        tags["tune.seed"] = str(record.seed)
        if self._parent is not None:
            tags[PARENT_TAG] = self._parent.id
        started = record.attempts[0].started if record.attempts else record.created
        run = self._begin(self._children.get(record.id), record.id, tags, started)
        self._children[record.id] = run
        self._log_params(run, {**dict(_flat(record.config)), **record.params})

    def reported(self, trial_id: str, reports: list[Report]) -> None:
        from mlflow.entities import Metric

        run = self._children[trial_id]
        if run.sent is None:
            run.sent = self._steps(run)
        new = {(k, r.step): (v, r.time) for r in reports for k, v in r.metrics.items()}
        metrics = [
            Metric(_name(key), value, int(seconds * 1000), step)
            for (key, step), (value, seconds) in new.items()
            if (_name(key), step) not in run.sent
        ]
        for i in range(0, len(metrics), _METRICS):
            batch = metrics[i : i + _METRICS]
            self._client.log_batch(run.id, metrics=batch)
            run.sent.update((m.key, m.step) for m in batch)

    def trial_ended(self, record: TrialRecord) -> None:
        if record.id not in self._children:
            self.trial_started(record)
        run = self._children[record.id]
        tags = {"tune.state": record.state.value, "tune.reason": record.reason[:_VALUE]}
        self._tag(run, tags)
        ended = record.attempts[-1].ended if record.attempts else None
        self._end(run, _STATUS[record.state], ended or time.time())

    def sweep_ended(self, status: str, metrics: Mapping[str, float]) -> None:
        from mlflow.entities import Metric

        now = time.time()
        for child in self._children.values():
            if child.running:
                self._end(child, "KILLED", now)
        if self._parent is not None:
            values = [Metric(_name(k), v, int(now * 1000), 0) for k, v in metrics.items()]
            self._client.log_batch(self._parent.id, metrics=values)
            self._end(self._parent, status, now)

    def _begin(
        self, run: _Open | None, name: str, tags: Mapping[str, str], started: float
    ) -> _Open:
        if run is None:
            made = self._client.create_run(
                self._experiment, int(started * 1000), {SWEEP_TAG: self._key, **tags}, name
            )
            return _Open(made.info.run_id, sent=set())
        self._client.update_run(run.id, status="RUNNING")
        run.running = True
        self._tag(run, tags)
        return run

    def _end(self, run: _Open, status: str, seconds: float) -> None:
        self._client.set_terminated(run.id, status, int(seconds * 1000))
        run.running = False

    def _tag(self, run: _Open, tags: Mapping[str, str]) -> None:
        from mlflow.entities import RunTag

        self._client.log_batch(run.id, tags=[RunTag(k, v) for k, v in tags.items()])

    def _log_params(self, run: _Open, params: Mapping[str, object]) -> None:
        from mlflow.entities import Param

        named = {_name(key): str(value)[:_VALUE] for key, value in params.items()}
        new = [Param(k, v) for k, v in named.items() if k not in run.params]
        for i in range(0, len(new), _PARAMS):
            self._client.log_batch(run.id, params=new[i : i + _PARAMS])
        run.params.update(named)

    def _steps(self, run: _Open) -> set[tuple[str, int]]:
        histories = (self._client.get_metric_history(run.id, key) for key in run.metrics)
        return {(m.key, m.step) for history in histories for m in history}


def _client(uri: str) -> MlflowClient:
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    from mlflow import MlflowClient

    for logger in ("mlflow", "alembic"):
        logging.getLogger(logger).setLevel(logging.WARNING)
    if uri.startswith("sqlite:///"):
        folder = Path(uri.removeprefix("sqlite:///")).parent
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as e:
            raise UserError(f"tracking.uri: cannot make {folder} ({e.strerror})") from e
    return MlflowClient(uri)


def _experiment_id(client: MlflowClient, name: str, artifact_root: Path | None) -> str:
    from mlflow.exceptions import MlflowException

    location = artifact_root.absolute().as_uri() if artifact_root else None
    found = client.get_experiment_by_name(name)
    try:
        return str(found.experiment_id if found else client.create_experiment(name, location))
    except MlflowException:  # another sweep has made it in between
        if (found := client.get_experiment_by_name(name)) is None:
            raise
        return str(found.experiment_id)


def _search(client: MlflowClient, experiments: list[str], sweep_key: str) -> Iterator[Run]:
    mark = '"' if "'" in sweep_key else "'"
    query, token = f"tags.`{SWEEP_TAG}` = {mark}{sweep_key}{mark}", None
    while True:
        page = client.search_runs(experiments, query, max_results=1000, page_token=token)
        yield from page
        token = page.token
        if not token:
            return


def _trial_of(run: Run) -> str:
    return str(run.data.tags[TRIAL_TAG])


def _flat(tree: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, object]]:
    for key, value in tree.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _name(key: str) -> str:
    return re.sub(r"[^\w\-. :/]", "_", key)[:_KEY]


def _shown(uri: str) -> str:
    password = urlsplit(uri).password
    return uri.replace(password, "***") if password else uri
