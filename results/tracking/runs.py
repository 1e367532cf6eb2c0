"""A sweep's runs in MLflow: updates them and sends nothing twice."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from results.records.trial import Report, TrialRecord, TrialState
from results.storage.fencing import Fence
from results.tracking.averages import Average
from results.tracking.client import (
    AVERAGE_TAG,
    PARENT_TAG,
    SWEEP_TAG,
    TRIAL_TAG,
    connect,
    experiment_id,
    search,
)
from results.tracking.extras import Extras
from results.tracking.tracker import Ending, SweepFacts
from search_spaces.nested import flattened
from search_spaces.redaction import redacted

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Metric

_METRICS, _PARAMS = 800, 100  # per log_batch: MLflow takes 100 parameters and tags, 1000 in all
_KEY, _VALUE = 250, 6000  # characters of a name and of a parameter's value, likewise
_STATUS = {TrialState.COMPLETED: "FINISHED", TrialState.FAILED: "FAILED"}
"""MLflow's status of a trial's run; those of the other states are KILLED."""


@dataclass
class _Run:
    """A run and what MLflow stores of it; `sent` is None until MLflow was asked for its metrics."""

    id: str
    metrics: set[str] = field(default_factory=set)
    params: set[str] = field(default_factory=set)
    tags: dict[str, str] = field(default_factory=dict)
    sent: set[tuple[str, int]] | None = None
    running: bool = True


class Runs:
    """The runs of one sweep, found by their tags. Any method may raise what MLflow raises.

    After an error create a new object: it is unknown how much of the failed call MLflow stored.

    Args:
        uri: `sqlite:///…/mlflow.db`, another SQLAlchemy URI, or the http(s) address of a server.
        artifact_root: folder for a new experiment's artifacts; None leaves it to the server.
        experiment: its name; created when there is none.
        fence: checked before every write; its errors are raised.
    """

    def __init__(
        self,
        uri: str,
        artifact_root: Path | None,
        experiment: str,
        facts: SweepFacts,
        fence: Fence,
    ) -> None:
        self._reader = connect(uri)
        self._fence = fence
        self._experiment_id = experiment_id(self._client, experiment, artifact_root)
        self._key = facts.key
        self._children: dict[str, _Run] = {}
        self._averages: dict[str, _Run] = {}
        parent = None
        for run in search(self._reader, [self._experiment_id], facts.key):
            known = _Run(
                run.info.run_id, set(run.data.metrics), set(run.data.params), dict(run.data.tags)
            )
            known.running = run.info.status == "RUNNING"
            trial, average = (run.data.tags.get(tag) for tag in (TRIAL_TAG, AVERAGE_TAG))
            if trial is not None:
                self._children[trial] = known
            elif average is not None:
                self._averages[average] = known
            else:
                parent = known
        self._parent = parent or self._create(facts.name, {}, time.time())
        self._reopen(self._parent)
        self._log(self._parent, params=facts.params, tags=facts.tags)
        self._store(self._parent, facts.artifacts)

    @property
    def _client(self) -> MlflowClient:
        """The client for writes, which only the sweep's owner may make."""
        self._fence.check()
        return self._reader

    def update(self, record: TrialRecord, reports: list[Report], extras: Extras) -> None:
        """Bring a trial's run up to date.

        Args:
            record: the present record.
            reports: those that may be new, oldest first.
            extras: empty while the trial runs.
        """
        tags = {"tune.attempt": str(len(record.attempts)), "tune.seed": str(record.seed)}
        tags["tune.workers"] = ", ".join(str(a.workers) for a in record.attempts)
        tags |= {"tune.state": record.state.value, "tune.reason": record.reason or "under way"}
        run = self._children.get(record.id)
        if run is None:
            started = record.attempts[0].started if record.attempts else record.created
            fixed = {TRIAL_TAG: record.id, PARENT_TAG: self._parent.id}
            run = self._children[record.id] = self._create(record.id, fixed, started)
        elif record.state.active:
            self._reopen(run)
        params = {**flattened(record.config), **record.params}
        points = {(k, r.step): (v, r.time) for r in reports for k, v in r.metrics.items()}
        points |= {(key, step): (value, time) for key, step, time, value in extras.samples}
        metrics = self._unsent(run, points)
        self._log(run, params=params, tags={**tags, **extras.tags}, metrics=metrics)
        self._store(run, extras.artifacts)
        if not record.state.active:
            ended = record.attempts[-1].ended if record.attempts else None
            self._end(run, _STATUS.get(record.state, "KILLED"), ended or time.time())

    def average(self, average: Average) -> None:
        """Bring the run of an average of weights up to date."""
        run = self._averages.get(average.digest)
        if run is None:
            fixed = {AVERAGE_TAG: average.digest, PARENT_TAG: self._parent.id}
            run = self._averages[average.digest] = self._create(
                average.name, fixed, average.created
            )
        elif not run.running:
            return
        runs = ", ".join(self._children[m].id for m in average.members if m in self._children)
        metrics = self._unsent(
            run, {(k, 0): (v, average.created) for k, v in average.metrics.items()}
        )
        tags = {**average.tags, "tune.member_runs": runs}
        self._log(run, params=average.params, tags=tags, metrics=metrics)
        self._store(run, average.artifacts)
        self._end(run, "FINISHED", average.created)

    def end(self, ending: Ending) -> None:
        """The session has ended: set the status of every run that is still running."""
        from mlflow.entities import Metric

        now = time.time()
        for child in self._children.values():
            if child.running:
                self._end(child, "KILLED", now)
        values = [Metric(_name(k), v, int(now * 1000), 0) for k, v in ending.metrics.items()]
        self._log(self._parent, metrics=values)
        self._end(self._parent, ending.status, now)

    def _create(self, name: str, tags: Mapping[str, str], started: float) -> _Run:
        tags = {SWEEP_TAG: self._key, **tags}
        made = self._client.create_run(self._experiment_id, int(started * 1000), tags, name)
        return _Run(made.info.run_id, tags=dict(tags), sent=set())

    def _reopen(self, run: _Run) -> None:
        if not run.running:
            self._client.update_run(run.id, status="RUNNING")
            run.running = True

    def _end(self, run: _Run, status: str, seconds: float) -> None:
        self._client.set_terminated(run.id, status, int(seconds * 1000))
        run.running = False

    def _log(
        self,
        run: _Run,
        *,
        params: Mapping[str, object] | None = None,
        tags: Mapping[str, str] | None = None,
        metrics: list[Metric] | None = None,
    ) -> None:
        """Send what the run does not have, in as few calls as MLflow's limits allow."""
        from mlflow.entities import Param, RunTag

        named = {_name(k): str(v)[:_VALUE] for k, v in redacted(params or {}).items()}
        texts = {k: str(v)[:_VALUE] for k, v in redacted(tags or {}).items()}
        changed = [RunTag(k, v) for k, v in texts.items() if run.tags.get(k) != v]
        new = [Param(k, v) for k, v in named.items() if k not in run.params]
        points = metrics or []
        while new or changed or points:
            self._client.log_batch(run.id, points[:_METRICS], new[:_PARAMS], changed[:_PARAMS])
            points, new, changed = points[_METRICS:], new[_PARAMS:], changed[_PARAMS:]
        run.params.update(named)
        run.tags.update(texts)
        if run.sent is not None:
            run.sent.update((m.key, m.step) for m in metrics or [])

    def _store(self, run: _Run, artifacts: Mapping[str, str]) -> None:
        """Store files with a run; a tag with the digest shows that a file is there already."""
        for name, text in artifacts.items():
            tag, digest = f"tune.artifact.{name}", hashlib.sha256(text.encode()).hexdigest()
            if run.tags.get(tag) != digest:
                self._client.log_text(run.id, text, name)
                self._log(run, tags={tag: digest})

    def _unsent(
        self, run: _Run, points: Mapping[tuple[str, int], tuple[float, float]]
    ) -> list[Metric]:
        """Of (key, step) → (value, Unix seconds), the points that MLflow does not have."""
        from mlflow.entities import Metric

        if points and run.sent is None:
            histories = (self._reader.get_metric_history(run.id, key) for key in run.metrics)
            run.sent = {(m.key, m.step) for history in histories for m in history}
        sent = run.sent or set()
        return [
            Metric(_name(key), value, int(seconds * 1000), step)
            for (key, step), (value, seconds) in points.items()
            if (_name(key), step) not in sent
        ]


def _name(key: str) -> str:
    return re.sub(r"[^\w\-. :/]", "_", key)[:_KEY]
