"""Where a sweep is tracked, and who tells the tracker."""

from __future__ import annotations

import os

from results.paths import Storage, SweepPaths
from results.records.trial import Report, TrialRecord
from results.storage.fencing import Fence
from results.tracking import Delivery, Ending, NullTracker, Tracker, mlflow_tracker
from search_spaces.redaction import redact
from search_spaces.spec.sweep import SweepSpec
from tuning.controller.events import SweepEvents
from tuning.controller.sweep_dir.lock import acquire_lock
from tuning.controller.tracking.process_client import TrackingClient, tracking_command

_TIMEOUT_S = 60.0
"""Seconds for the tracker to deliver the rest when the session ends."""


class TrackerObserver(SweepEvents):
    """Tells a tracker which trials changed, and at last how the session ended.

    Attributes:
        undelivered: one line on what could not be delivered, once the session has ended.
    """

    def __init__(self, tracker: Tracker) -> None:
        self._tracker = tracker
        self.undelivered: str | None = None

    def trial_started(self, record: TrialRecord) -> None:
        """An attempt begins."""
        self._tracker.changed(record.id, reported=False)

    def trial_reported(self, record: TrialRecord, report: Report) -> None:
        """There are new metrics."""
        self._tracker.changed(record.id, reported=True)

    def trial_ended(self, record: TrialRecord) -> None:
        """The trial ended, or will be tried again."""
        self._tracker.changed(record.id, reported=False)

    def session_ended(self, ending: Ending | None) -> None:
        """Deliver the rest."""
        if ending is not None:
            self.undelivered = self._tracker.close(ending, _TIMEOUT_S)


def make_tracker(spec: SweepSpec, paths: SweepPaths, fence: Fence) -> Tracker:
    """The tracker of a running sweep; MLflow in the storage's own database by default."""
    if spec.tracking.name == "none":
        return NullTracker()
    name = f"MLflow at {redact(tracking_uri(spec, paths))}"
    return TrackingClient(name, tracking_command(paths.root, fence))


def make_delivery(spec: SweepSpec, paths: SweepPaths, fence: Fence) -> Delivery:
    """Delivery of a sweep to the MLflow that it names, by its owner."""
    from tuning.controller.tracking.sweep_facts import sweep_facts

    storage, facts = Storage(paths.root.parent), sweep_facts(paths, spec)
    experiment = spec.tracking.experiment or spec.name
    uri = tracking_uri(spec, paths)
    return mlflow_tracker(paths, uri, storage.artifacts, experiment, facts, fence)


def deliver(spec: SweepSpec, paths: SweepPaths, timeout_s: float) -> str | None:
    """Deliver what is not delivered yet, of a sweep that nobody drives.

    Returns:
        One line on what still is not; None when all is.

    Raises:
        UserError: it is driven.
    """
    with acquire_lock(paths.lock) as fence:
        tracker = make_delivery(spec, paths, fence)
        return tracker.close(tracker.last_ending, timeout_s)


def tracking_uri(spec: SweepSpec, paths: SweepPaths) -> str:
    """Where MLflow keeps the sweep's runs: the file's, `$MLFLOW_TRACKING_URI`, or the storage's."""
    chosen = spec.tracking.uri or os.environ.get("MLFLOW_TRACKING_URI")
    return chosen or f"sqlite:///{Storage(paths.root.parent).tracking_db}"
