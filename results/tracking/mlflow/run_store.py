"""Creates and updates runs in MLflow, and sends nothing twice."""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from results.storage.fencing import Fence
from results.tracking.mlflow.client import (
    PARENT_TAG,
    PIPELINE_TAG,
    SWEEP_TAG,
    connect,
    experiment_id,
    explain_errors,
    mlflow_name,
    mlflow_value,
    runs_of_sweep,
    search,
    shortened,
)
from results.tracking.mlflow.database import sqlite_file
from results.tracking.tracker import PipelineFacts
from search_spaces.redaction import redact, redacted

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Param, Run, RunTag

log = logging.getLogger(__name__)

_RUN_NAME = 250  # characters
_METRICS, _PARAMS = 800, 100  # per log_batch: MLflow takes 100 parameters and tags, 1000 in all
Point = tuple[float, float]
"""A value, and its time in Unix seconds."""


@dataclass
class StoredRun:
    """A run and what MLflow stores of it; `sent` is None until MLflow was asked for its metrics."""

    id: str
    metrics: set[str] = field(default_factory=set)
    params: set[str] = field(default_factory=set)
    tags: dict[str, str] = field(default_factory=dict)
    sent: dict[tuple[str, int], Metric] | None = None
    running: bool = True


class RunStore:
    """The runs of one experiment. Any method may raise what MLflow raises.

    Args:
        uri: `sqlite:///…/mlflow.db`, another SQLAlchemy URI, or the http(s) address of a server.
        artifact_root: folder for a new experiment's artifacts; None leaves it to the server.
        experiment: its name; created when there is none.
        fence: checked before every write; its errors are raised.
    """

    def __init__(self, uri: str, artifact_root: Path | None, experiment: str, fence: Fence) -> None:
        self.reader = connect(uri)
        self._fence = fence
        self._refused: set[str] = set()
        self.experiment = experiment_id(self.client, experiment, artifact_root)

    @property
    def client(self) -> MlflowClient:
        """The client for writes, which only the owner of the fence may make."""
        self._fence.check()
        return self.reader

    def find(self, tag: str, value: str) -> Iterator[StoredRun]:
        """The runs with a tag."""
        for run in search(self.reader, [self.experiment], tag, value):
            yield _as_run(run)

    def pipeline(self, facts: PipelineFacts) -> StoredRun:
        """The run of a pipeline, which is created if there is none.

        Its stages may run at once, each with a process that looks for it: the run that was created
        first is kept.
        """
        if (found := self._pipeline(facts)) is None:
            made = self.create(facts.name, {PIPELINE_TAG: facts.key}, time.time())
            found = self._pipeline(facts) or made
            if found.id != made.id:
                self.delete(made)
        return found

    def _pipeline(self, facts: PipelineFacts) -> StoredRun | None:
        runs = search(self.reader, [self.experiment], PIPELINE_TAG, facts.key)
        own = [run for run in runs if PARENT_TAG not in run.data.tags]
        first = min(own, key=lambda run: (run.info.start_time, run.info.run_id), default=None)
        return _as_run(first) if first else None

    def create(self, name: str, tags: Mapping[str, str], started: float) -> StoredRun:
        """A new run.

        Args:
            started: Unix seconds.
        """
        texts = _texts(tags)
        made = self.client.create_run(
            self.experiment, int(started * 1000), texts, shortened(redact(name), _RUN_NAME)
        )
        return StoredRun(made.info.run_id, tags=texts, sent={})

    def delete(self, run: StoredRun) -> None:
        """Delete a run; MLflow keeps it where people find what was deleted."""
        self.client.delete_run(run.id)

    def reopen(self, run: StoredRun) -> None:
        """Set the status of a run that has ended to running."""
        if not run.running:
            self.client.update_run(run.id, status="RUNNING")
            run.running = True

    def end(self, run: StoredRun, status: str, seconds: float) -> None:
        """Set the status of a run, and when it ended, in Unix seconds."""
        self.client.set_terminated(run.id, status, int(seconds * 1000))
        run.running = False

    def log(
        self,
        run: StoredRun,
        *,
        params: Mapping[str, object] | None = None,
        tags: Mapping[str, str] | None = None,
        metrics: list[Metric] | None = None,
    ) -> None:
        """Send what the run does not have, in as few calls as MLflow's limits allow."""
        from mlflow.entities import Param, RunTag

        named, texts = _texts(params or {}), _texts(tags or {})
        changed = [RunTag(k, v) for k, v in texts.items() if run.tags.get(k) != v]
        new = [Param(k, v) for k, v in named.items() if k not in run.params]
        points = metrics or []
        while new or changed or points:
            self._send(run.id, [*points[:_METRICS], *new[:_PARAMS], *changed[:_PARAMS]])
            points, new, changed = points[_METRICS:], new[_PARAMS:], changed[_PARAMS:]
        run.params.update(named)
        run.tags.update(texts)
        run.metrics.update(m.key for m in metrics or [])
        if run.sent is not None:
            run.sent |= {(m.key, m.step): m for m in metrics or []}

    def _send(self, run: str, items: Sequence[Metric | Param | RunTag]) -> None:
        """Send a batch. What MLflow refuses is left out, by name, and costs nothing else."""
        from mlflow.entities import Metric, Param, RunTag
        from mlflow.exceptions import MlflowException

        metrics = [item for item in items if isinstance(item, Metric)]
        params = [item for item in items if isinstance(item, Param)]
        tags = [item for item in items if isinstance(item, RunTag)]
        try:
            self.client.log_batch(run, metrics, params, tags)
        except MlflowException as e:
            if e.error_code != "INVALID_PARAMETER_VALUE":
                raise
            if half := len(items) // 2:
                self._send(run, items[:half])
                self._send(run, items[half:])
            elif items[0].key not in self._refused:
                self._refused.add(items[0].key)
                reason = redact(str(e)).splitlines()[0]
                log.warning("MLflow refuses %s, which is left out: %s", items[0].key, reason)

    def store(self, run: StoredRun, artifacts: Mapping[str, str]) -> None:
        """Store files with a run; a tag with the digest shows that a file is there already."""
        for name, text in artifacts.items():
            tag, digest = f"tune.artifact.{name}", hashlib.sha256(text.encode()).hexdigest()
            if run.tags.get(tag) != digest:
                self.client.log_text(run.id, text, name)
                self.log(run, tags={tag: digest})

    def unsent(self, run: StoredRun, points: Mapping[tuple[str, int], Point]) -> list[Metric]:
        """Of (key, step) → (value, Unix seconds), the points that MLflow does not have.

        A later attempt may have another value at a step: MLflow shows the newest.
        """
        from mlflow.entities import Metric

        if points and run.sent is None:
            histories = (self.reader.get_metric_history(run.id, key) for key in run.metrics)
            known = sorted(chain.from_iterable(histories), key=lambda m: m.timestamp)
            run.sent = {(m.key, m.step): m for m in known}
        sent, names = run.sent or {}, {key: mlflow_name(key) for key, _ in points}
        made = (Metric(names[k], v, int(s * 1000), step) for (k, step), (v, s) in points.items())
        return [m for m in made if _is_new(m, sent.get((m.key, m.step)))]


def _is_new(made: Metric, known: Metric | None) -> bool:
    return known is None or (made.timestamp > known.timestamp and made.value != known.value)


def _texts(values: Mapping[str, object]) -> dict[str, str]:
    """Parameters or tags as MLflow takes them, without secrets."""
    return {mlflow_name(key): mlflow_value(value) for key, value in redacted(values).items()}


def _as_run(run: Run) -> StoredRun:
    data = run.data
    found = StoredRun(run.info.run_id, set(data.metrics), set(data.params), dict(data.tags))
    found.running = run.info.status == "RUNNING"
    return found


def delete_runs(uri: str, keys: Collection[str]) -> int:
    """Delete the runs of sweeps and pipelines by their keys; MLflow keeps them as deleted ones.

    Returns:
        Number of runs.

    Raises:
        UserError: the tracker does not answer.
    """
    if (file := sqlite_file(uri)) is not None and not file.exists():
        return 0
    with explain_errors(uri):
        client = connect(uri)
        tags = [(key, tag) for tag in (SWEEP_TAG, PIPELINE_TAG) for key in keys]
        found = {run.info.run_id for tag in tags for run in runs_of_sweep(client, *tag)}
        for run in found:
            client.delete_run(run)
        return len(found)
