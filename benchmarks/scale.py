"""Measures whether the driver keeps up with many trials that report without pause.

It measures reports per second and the cost of a report, in each quarter of a sweep. No trial stops
early. `python -m benchmarks.scale --help`.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from benchmarks.machine import cores, machine
from benchmarks.overhead import CONTENDERS
from benchmarks.process import Outcome, Sample, run
from benchmarks.work import TrialTimes, Workload


@dataclass(frozen=True)
class Part:
    """Measurements of a part of a sweep.

    Attributes:
        per_s: reports per second.
        cpu_s: of the driver process, per report.
        median_wait_s, p99_wait_s: between two reports of a trial.
        silence_s: the longest time without a report of any trial.
        blocked_s: the longest iteration of the driver's event loop; None if unknown.
        rss: of the driver process at the end of the part (bytes).
    """

    per_s: float
    cpu_s: float
    median_wait_s: float
    p99_wait_s: float
    silence_s: float
    blocked_s: float | None
    rss: int


Delays = Sequence[tuple[float, float]]
"""Long iterations of the driver's event loop: the end (Unix seconds) and the seconds of each."""


def part(
    times: Sequence[TrialTimes],
    samples: Sequence[Sample],
    delays: Delays | None,
    begin: float,
    end: float,
) -> Part:
    """Measure the part between two times (Unix seconds)."""
    reports = sorted(r for trial in times for r in trial.reports if begin <= r <= end)
    waits = [
        b - a for t in times for a, b in pairwise(t.reports) if begin <= a <= end and b - a > 0
    ]
    inside = [s for s in samples if begin <= s.time <= end] or list(samples[-1:])
    cpu = inside[-1].cpu_s - inside[0].cpu_s
    return Part(
        per_s=len(reports) / (end - begin),
        cpu_s=cpu / len(reports),
        median_wait_s=statistics.median(waits),
        p99_wait_s=sorted(waits)[int(0.99 * (len(waits) - 1))],
        silence_s=max(b - a for a, b in pairwise(reports)),
        blocked_s=_longest(delays, begin, end),
        rss=inside[-1].rss,
    )


def _longest(delays: Delays | None, begin: float, end: float) -> float | None:
    if delays is None:
        return None
    return max((seconds for ended, seconds in delays if begin <= ended <= end), default=0.0)


def quarters(times: Sequence[TrialTimes], outcome: Outcome, delays: Delays | None) -> list[Part]:
    """Measure four parts of the sweep with the same number of reports."""
    reports = sorted(r for trial in times for r in trial.reports)
    cuts = [reports[i * (len(reports) - 1) // 4] for i in range(5)]
    return [part(times, outcome.samples, delays, a, b) for a, b in pairwise(cuts)]


def table(parts: Sequence[Part]) -> str:
    """The parts as Markdown, one per line."""
    lines = [
        "| quarter | reports/s | driver's CPU a report | wait, median | wait, 99 % |"
        " longest silence | longest iteration | driver's memory |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for number, p in enumerate(parts, 1):
        cells = [
            f"{p.per_s:.0f}",
            f"{1000 * p.cpu_s:.1f} ms",
            f"{1000 * p.median_wait_s:.0f} ms",
            f"{1000 * p.p99_wait_s:.0f} ms",
            f"{p.silence_s:.2f} s",
            "-" if p.blocked_s is None else f"{p.blocked_s:.2f} s",
            f"{p.rss / 2**20:.0f} MiB",
        ]
        lines.append(f"| {number} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.scale",
        description=__doc__,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("--trials", type=int, default=1000, help="trials of the sweep")
    add("--reports", type=int, default=20, help="of each trial")
    add("--at-once", type=int, default=4, help="concurrent trials, of one worker each")
    add("--only", choices=("ours", "ray"), default="ours", help="ray: its recipe, 15 s a trial")
    add("--timeout", type=float, default=3600, help="seconds")
    return parser.parse_args()


def main() -> None:
    """Measure and print; keep the files only if something failed."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # ends the started processes too
    given = _arguments()
    cpus = min(1.0, int(100 * cores() / given.at_once) / 100)
    job = Workload(given.trials, given.reports, 0.0, 1, given.at_once, cpus, 0, given.reports)
    contender, folder = CONTENDERS[given.only], Path(tempfile.mkdtemp(prefix="tune-bench-"))
    command = contender.command(job, folder)
    recorded = folder / "loop_delays.json"
    if given.only == "ours":
        command = [sys.executable, "-m", "benchmarks.loop_delays", str(recorded), *command[3:]]
    outcome = run(command, folder / "output.log", given.timeout, contender.env)
    times = contender.collect(folder)
    delays = json.loads(recorded.read_text()) if recorded.exists() else None
    print(
        f"{contender.title}: {job.trials} trials of {job.reports} reports, {job.at_once} at once, "
        f"{outcome.wall_s:.0f} s in all\n\n{table(quarters(times, outcome, delays))}\n\n{machine()}"
    )
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
