"""An observer learns from the records what happens in another process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.tuning.simulate import open_run, train
from tests.tuning.sources import sweep
from tuning.controller.events import SweepEvents
from tuning.watch.follow import Follower


class Log(SweepEvents):
    """Names of events."""

    def __init__(self) -> None:
        self.events: list[Any] = []

    def session_started(self, start: Any) -> None:
        self.events.append(["begin", len(start.history), sum(len(r) for _, r in start.history)])

    def trial_started(self, record: Any) -> None:
        self.events.append(["started", record.id])

    def trial_reported(self, record: Any, report: Any) -> None:
        self.events.append([record.id, report.step])

    def trial_ended(self, record: Any) -> None:
        self.events.append(["ended", record.id, str(record.state)])

    def session_ended(self, ending: Any) -> None:
        self.events.append(["end", ending.status])


def test_events_of_trials_come_once_and_in_order(tmp_path: Path) -> None:
    paths = sweep(tmp_path, run=False, scheduler={"name": "none"}, budget={"trials": 2})
    spec = sweep_spec(paths)
    run = open_run(paths.root, spec)
    first = run.next_trial()
    train(run, first, upto=1)
    log = Log()
    follower = Follower(paths, log)
    follower.begin()
    assert log.events == [["begin", 1, 1]]

    train(run, first, upto=3)
    follower.poll()
    follower.poll()
    assert log.events[1:] == [["t0000", 2], ["t0000", 3]]

    run.on_ended("t0000")
    train(run, run.next_trial(), upto=2)
    run.on_ended("t0001")
    follower.follow(lambda: False)
    assert log.events[3:] == [
        ["ended", "t0000", "completed"],
        ["started", "t0001"],
        ["t0001", 1],
        ["t0001", 2],
        ["ended", "t0001", "completed"],
        ["end", "KILLED"],
    ]


def test_a_damaged_trial_does_not_end_the_watch(tmp_path: Path) -> None:
    paths = sweep(tmp_path)
    paths.trial("t0002").record.write_text("{")
    log = Log()
    Follower(paths, log).begin()
    assert log.events[0][1] == 5


def sweep_spec(paths: Any) -> Any:
    from results.records.spec_file import read_spec

    return read_spec(paths)
