"""The live table."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

from rich.console import Console

from results.paths import SweepPaths
from results.records.trial import Report, TrialRecord
from tests.tuning.simulate import make_spec
from tuning.cli.live_view import LiveView
from tuning.controller.events import SessionStart


def test_live_view_shows_every_objective() -> None:
    spec = make_spec(metric=["loss", "size"], mode=["min", "max"])
    view = LiveView(console := Console(file=(out := StringIO()), width=120, height=40))
    view.session_started(SessionStart(SweepPaths(Path()), spec))
    points = {"t0000": (0.1, 1.0), "t0001": (0.2, 2.0), "t0002": (0.3, 1.5)}
    for number_, (trial, (loss, size)) in enumerate(points.items()):
        record = TrialRecord(id=trial, number=number_, params={}, config={}, seed=0, created=0.0)
        view.trial_started(record)
        output = Report(step=3, metrics={"loss": loss, "size": size}, attempt=1, time=0.0)
        view.trial_reported(record, output)
    assert view.progress.leaders() == ["t0000", "t0001"]
    assert view.progress.format_values(record.id) == "loss 0.3  size 1.5"
    console.print(view.render())
    view.session_ended(None)
    table, progress = out.getvalue().split("trials", 1)
    assert "loss" in table
    assert "size" in table
    assert table.count(" *") == 2
    assert "2 on the Pareto front" in progress
