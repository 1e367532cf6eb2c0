"""Measures how many reports a second one driver answers, of many workers and after many trials.

The session, its driver, Ray Tune and the broker are the real ones; the workers train nothing
(`benchmarks.fake_lanes`), on virtual machines of 8 workers each. `python -m benchmarks.driver
--help`.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from benchmarks import process
from benchmarks.driver_process import Settings
from benchmarks.fake_lanes import ENDED, REPORTED, TAKEN
from benchmarks.machine import machine
from benchmarks.ours import sweep_of
from benchmarks.work import Workload, loss_at

_SAMPLE_S, _DRIVER = 0.2, "driver"
_OTHERS = ("broker", "lanes")


@dataclass(frozen=True)
class Row:
    """Measurements of one sweep, in seconds, bytes and counts.

    From the time when all lanes have a trial to the last proposal:

    Attributes:
        workers: lanes of one worker each.
        before: trials that the sweep had when the session began.
        reports_per_s: answered.
        cpu: seconds of the processor per report: of the driver, the broker, and the process that
            stands for the workers.
        median_s, p99_s: from a report to its answer.
        next_median_s, next_p99_s: from the end of a trial to the next one on its lane.
        proposal_s: median time of a proposal.
        trials: that began.

    And of the whole session:

    Attributes:
        place_s: from the first trial to one on each lane, which are all free at first.
        rss: of the driver, at the most.
    """

    workers: int
    before: int
    reports_per_s: float
    cpu: dict[str, float]
    median_s: float
    p99_s: float
    next_median_s: float
    next_p99_s: float
    proposal_s: float
    trials: int
    place_s: float
    rss: int


class Watch:
    """CPU time and memory of the driver, the broker and the lanes, over time."""

    def __init__(self, driver: int, folder: Path) -> None:
        self._pids, self._folder = {_DRIVER: driver}, folder
        self.cpu: dict[str, list[tuple[float, float]]] = {n: [] for n in (_DRIVER, *_OTHERS)}
        self.rss = 0

    def sample(self) -> None:
        """Look at each process, as far as it has started."""
        file = self._folder / "pids.json"
        if len(self._pids) == 1 and file.exists():
            with suppress(ValueError):  # it is being written
                self._pids |= json.loads(file.read_text())
        for name, pid in self._pids.items():
            with suppress(psutil.Error):
                spent = psutil.Process(pid).cpu_times()
                self.cpu[name].append((time.time(), spent.user + spent.system))
        with suppress(psutil.Error):
            self.rss = max(self.rss, psutil.Process(self._pids[_DRIVER]).memory_info().rss)

    def spent(self, name: str, begin: float, end: float) -> float:
        """Seconds of the processor that a process spent between two times (Unix seconds)."""
        inside = [cpu for at, cpu in self.cpu[name] if begin <= at <= end]
        return inside[-1] - inside[0] if len(inside) > 1 else float("nan")


def measure(
    settings: Settings, trials: int, before: int, search: str, timeout_s: float, folder: Path
) -> Row:
    """Run one sweep, with so many trials after those that it has already."""
    name = make_sweep(settings, before, folder)
    command = [sys.executable, "-m", "benchmarks.driver_process", settings.dumps()]
    command += ["resume", name, "--storage", str(folder), "--trials", str(before + trials)]
    command += ["--set", f"search.name={search}", "--set", "tracking.name=none"]
    began = time.monotonic()
    with process.started(command, folder / "output.log", {}) as driver:
        watch = Watch(driver.pid, folder)
        while driver.poll() is None:
            watch.sample()
            if time.monotonic() - began > timeout_s:
                raise SystemExit(f"not done after {timeout_s:g} s; see {folder}")
            with suppress(subprocess.TimeoutExpired):
                driver.wait(_SAMPLE_S)
    if driver.returncode:
        raise SystemExit(f"exit code {driver.returncode}; see {folder}/output.log")
    times = [Event(*found) for found in json.loads((folder / "times.json").read_text())]
    proposals = json.loads((folder / "proposals.json").read_text())
    return summarise(settings, before, times, proposals, watch)


def make_sweep(settings: Settings, before: int, folder: Path) -> str:
    """Create a sweep that has so many finished trials of one report; returns its name."""
    from results.records.reports import ReportWriter
    from results.records.trial import Report
    from search_spaces.loading.sweep_file import LoadedSweep
    from search_spaces.positions import Source
    from search_spaces.spec.sweep import SweepSpec
    from tuning.controller.session import asked_session
    from tuning.controller.sweep_dir.create import create_sweep

    last = settings.reports
    job = Workload(max(1, before), last, 0.0, 1, settings.lanes, 1.0, 0, last)
    raw = json.dumps({**sweep_of(job, folder), "search": {"name": "random"}})
    spec = SweepSpec.model_validate(json.loads(raw))
    paths = create_sweep(LoadedSweep(spec, Source("s.yaml"), Path("s.yaml"), ()), None, None)
    with asked_session(paths, spec) as run, run.batched():
        for _ in range(before):
            trial = run.next_trial()
            assert trial is not None
            loss = loss_at(trial.config["x"], trial.config["learning_rate"], last)
            report = Report(step=last, metrics={"loss": loss}, attempt=1, time=time.time())
            writer = ReportWriter(trial.paths, 1, new=True)
            run.table.write_report(trial.trial_id, writer, report)
            run.on_report(trial.trial_id, report)
    return paths.name


@dataclass(frozen=True)
class Event:
    """What happened in a lane: see `benchmarks.fake_lanes.LaneWorkers.save`."""

    lane: str
    kind: str
    time: float
    seconds: float


def summarise(
    settings: Settings,
    before: int,
    events: Sequence[Event],
    proposals: Sequence[tuple[float, float]],
    watch: Watch,
) -> Row:
    """The row of a sweep."""
    taken = sorted(e.time for e in events if e.kind == TAKEN)
    begin, end = taken[settings.lanes - 1], taken[-1]
    reports = [e.seconds for e in events if e.kind == REPORTED and begin <= e.time <= end]
    follow = [gap for at, gap in pauses(events) if begin <= at <= end]
    spent = {name: watch.spent(name, begin, end) / len(reports) for name in watch.cpu}
    return Row(
        workers=settings.lanes,
        before=before,
        reports_per_s=len(reports) / (end - begin),
        cpu=spent,
        median_s=statistics.median(reports),
        p99_s=percentile(reports, 0.99),
        next_median_s=statistics.median(follow),
        next_p99_s=percentile(follow, 0.99),
        proposal_s=statistics.median(s for at, s in proposals if begin <= at <= end),
        trials=sum(begin < at <= end for at in taken),
        place_s=begin - taken[0],
        rss=watch.rss,
    )


def pauses(events: Sequence[Event]) -> list[tuple[float, float]]:
    """When each trial but the last of a lane ended, and the seconds until the next one there."""
    ended: dict[str, float] = {}
    found = []
    for event in sorted(events, key=lambda e: e.time):
        if event.kind == ENDED:
            ended[event.lane] = event.time
        elif event.kind == TAKEN and event.lane in ended:
            found.append((ended[event.lane], event.time - ended[event.lane]))
    return found


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which this share of them is."""
    return sorted(values)[int(share * (len(values) - 1))]


_HEAD = (
    *("workers", "trials before", "reports/s"),
    *("driver's CPU a report", "broker's", "workers'"),
    *("answer, median", "99 %", "next trial, median", "99 %"),
    *("proposal", "trials placed", "all lanes placed", "driver's memory"),
)


def line(row: Row) -> str:
    """A row as Markdown."""
    cells: tuple[Any, ...] = (
        *(f"{row.workers:,}", f"{row.before:,}", f"{row.reports_per_s:,.0f}"),
        *(f"{1000 * seconds:.2f} ms" for seconds in row.cpu.values()),
        *(f"{1000 * s:.0f} ms" for s in (row.median_s, row.p99_s)),
        *(f"{1000 * s:.0f} ms" for s in (row.next_median_s, row.next_p99_s)),
        *(f"{1000 * row.proposal_s:.1f} ms", row.trials, f"{row.place_s:.1f} s"),
        f"{row.rss / 2**20:.0f} MiB",
    )
    return f"| {' | '.join(map(str, cells))} |"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.driver",
        description=__doc__,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("--nodes", type=int, nargs="+", default=[1, 8, 32, 128], help="virtual machines")
    add("--before", type=int, nargs="+", default=[100], help="trials that the sweep already has")
    add("--rate", type=float, default=0.0, help="reports/s of all workers; 0: all that is answered")
    add("--reports", type=int, default=50, help="of each trial")
    add("--trials", type=int, default=200, help="trials beyond the first one of each worker")
    add("--search", default="tpe", help="the searcher")
    add("--timeout", type=float, default=900, help="seconds for each sweep")
    add("--folder", type=Path, help="of the sweeps; default: the temporary one")
    add("--profile", type=Path, help="gets the driver's profile, for pstats")
    return parser.parse_args()


def main() -> None:
    """Print a table, one row for each number of machines and of trials before."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # ends the started processes too
    given = _arguments()
    print(f"{machine()}\n\n| {' | '.join(_HEAD)} |\n|{' ---: |' * len(_HEAD)}", flush=True)
    for nodes in given.nodes:
        for before in given.before:
            folder = Path(tempfile.mkdtemp(prefix="tune-bench-", dir=given.folder))
            interval_s = nodes * 8 / given.rate if given.rate else 0.0
            profile = given.profile is not None
            settings = Settings(nodes, interval_s, given.reports, str(folder), profile)
            trials = settings.lanes + given.trials
            row = measure(settings, trials, before, given.search, given.timeout, folder)
            print(line(row), flush=True)
            if profile:
                shutil.copy(folder / "driver.prof", given.profile)
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
