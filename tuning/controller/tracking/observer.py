"""The observer of a session that passes its events on to MLflow."""

from __future__ import annotations

import logging
import os
from functools import partial
from pathlib import Path

from results.paths import Storage, SweepPaths
from results.records.pipeline import outer_storage, pipeline_of
from results.records.trial import Report, TrialRecord
from results.storage.fencing import Fence
from results.sweep_folder.folder import separate_copy, sweep_argument
from results.sweep_folder.lock import acquire_lock
from results.tracking import Delivery, Ending, Tracker, mlflow_tracker
from results.tracking.extras import no_winner, read_winner
from results.tracking.mlflow.database import sqlite_uri
from search_spaces.errors import UserError
from search_spaces.redaction import redact
from search_spaces.spec.env_vars import expand_now
from search_spaces.spec.sweep import SweepSpec
from tuning.controller.events import SweepEvents
from tuning.controller.tracking.tracking_client import (
    START_DELAY_S,
    TrackingClient,
    tracking_command,
)

log = logging.getLogger(__name__)

_TIMEOUT_S, _STOPPED_S = 60.0, 10.0
"""Seconds for the tracker to deliver the rest when the session ends, or is stopped."""


class TrackerObserver(SweepEvents):
    """Informs a tracker of changed trials, and of the end of the session.

    Attributes:
        undelivered: one line on what was not delivered, after the session has ended.
    """

    def __init__(self, tracker: Tracker) -> None:
        self._tracker = tracker
        self.undelivered: str | None = None

    def trial_started(self, record: TrialRecord) -> None:
        """An attempt begins, or has ended."""
        self._tracker.changed(record.id, reported=False)

    trial_ended = trial_started

    def trial_reported(self, record: TrialRecord, report: Report) -> None:
        """There are new metrics."""
        self._tracker.changed(record.id, reported=True)

    def closes_soon(self) -> None:
        """No trial runs any more; the results are written, and the workers end."""
        self._tracker.closes_soon()

    def session_ended(self, ending: Ending | None) -> None:
        """Deliver the rest."""
        if ending is None:
            self._tracker.abandon()
            return
        wait_s = _TIMEOUT_S if ending.status == "FINISHED" else _STOPPED_S
        self.undelivered = self._tracker.close(ending, wait_s)


def make_tracker(
    spec: SweepSpec, paths: SweepPaths, fence: Fence, start_delay_s: float = START_DELAY_S
) -> Tracker:
    """The tracker of a running sweep: MLflow in a process of its own, or none.

    Args:
        spec, paths, fence: of the sweep.
        start_delay_s: see `TrackingClient`.
    """
    if spec.tracking.name == "none":
        return Tracker()
    name = f"MLflow at {redact(tracking_uri(spec, paths))}"
    return TrackingClient(name, tracking_command(paths.root, fence), start_delay_s)


def make_delivery(spec: SweepSpec, paths: SweepPaths, fence: Fence) -> Delivery:
    """The delivery of a sweep to its MLflow server or database, for the owner of `fence`."""
    from tuning.controller.tracking.sweep_facts import sweep_facts

    uri, facts = tracking_uri(spec, paths), sweep_facts(paths, spec)
    artifacts = artifact_root(uri, paths)
    winner = partial(read_winner, paths, spec) if spec.tracking.log_model == "winner" else no_winner
    experiment = experiment_of(spec, paths)
    return mlflow_tracker(paths, uri, artifacts, experiment, facts, fence, winner)


def deliver(spec: SweepSpec, paths: SweepPaths, timeout_s: float) -> str | None:
    """Deliver the rest of a sweep that no driver runs.

    Returns:
        One line on what could not be delivered; None if everything was.

    Raises:
        UserError: a driver runs the sweep.
    """
    with acquire_lock(paths.lock) as fence:
        for line in separate_copy(paths):
            log.warning("%s", line)
        tracker = make_delivery(spec, paths, fence)
        return tracker.close(tracker.last_ending, timeout_s)


def delivery_note(spec: SweepSpec, paths: SweepPaths) -> str:
    """What could not be delivered in a while, and how to send it later; empty if all was."""
    try:
        problem = deliver(spec, paths, 20.0)
    except UserError as e:
        problem = str(e)
    later = f"later: tune sync {sweep_argument(paths)}"
    return f"not in MLflow yet ({problem}); {later}" if problem else ""


def tracking_uri(spec: SweepSpec, paths: SweepPaths) -> str:
    """The MLflow URI: of the sweep file, of `$MLFLOW_TRACKING_URI`, or the storage's database."""
    if spec.tracking.uri:
        return expand_now("tracking.uri", spec.tracking.uri)
    return default_tracking_uri(outer_storage(paths))


def artifact_root(uri: str, paths: SweepPaths) -> Path | None:
    """Where a new experiment's files are: a server has its own place, a database has none."""
    return None if uri.startswith(("http://", "https://")) else outer_storage(paths).artifacts


def experiment_of(spec: SweepSpec, paths: SweepPaths) -> str:
    """The experiment: of the sweep file, else named as the sweep, or as the pipeline of a stage."""
    pipeline = pipeline_of(paths.root)
    return spec.tracking.experiment or (pipeline.name if pipeline else spec.name)


def default_tracking_uri(storage: Storage) -> str:
    """`$MLFLOW_TRACKING_URI`, or the storage's database."""
    return os.environ.get("MLFLOW_TRACKING_URI") or sqlite_uri(storage.tracking_db)
