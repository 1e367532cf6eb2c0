"""A sweep that is simulated, and its metrics as a scrape reads them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import generate_latest

from results.metrics.collector import SweepCollector
from results.metrics.sweep_metrics import SweepMetrics
from results.records.trial import Report, TrialRecord, read_reports
from tests.tuning.simulate import make_spec, open_run
from tuning.controller.events import SweepEvents
from tuning.controller.sweep import SweepController

_SAMPLE = re.compile(r"^(\w+)\{(.*)\} (\S+)$", re.MULTILINE)


class Watch(SweepEvents):
    """Passes events on at once, where the exporter has a thread."""

    def __init__(self, metrics: SweepMetrics) -> None:
        self.metrics = metrics

    def trial_started(self, record: TrialRecord) -> None:
        self.metrics.trial_started(record)

    def trial_reported(self, record: TrialRecord, report: Report) -> None:
        self.metrics.trial_reported(record, report)

    def trial_ended(self, record: TrialRecord) -> None:
        self.metrics.trial_ended(record)


def text(metrics: SweepMetrics) -> str:
    return generate_latest(SweepCollector(metrics).registry()).decode()


def scraped(metrics: SweepMetrics) -> dict[str, float]:
    """Series to value; labels in alphabetical order, without `sweep`."""
    found = {}
    for name, labels, value in _SAMPLE.findall(text(metrics)):
        rest = ",".join(part for part in labels.split(",") if not part.startswith("sweep="))
        found[f"{name}{{{rest}}}" if rest else name] = float(value)
    return found


Session = Callable[..., tuple[SweepController, SweepMetrics]]


@pytest.fixture
def session(tmp_path: Path) -> Session:
    """Opens a session of one sweep, in the same folder each time, with its metrics."""

    def begin(**changes: Any) -> tuple[SweepController, SweepMetrics]:
        spec = make_spec(**changes)
        run = open_run(tmp_path / "simulated", spec)
        metrics = SweepMetrics(run.paths, spec)
        history = [
            (r, read_reports(run.paths.trial(i), r.end_step)) for i, r in run.records.items()
        ]
        metrics.add_history(history)
        run.observers.add(Watch(metrics))
        return run, metrics

    return begin
