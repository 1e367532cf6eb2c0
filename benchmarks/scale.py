"""Measures whether the driver keeps up with many trials that report without pause: reports per
second, what a report costs, whether either depends on how many there were. Nothing stops early.
`python -m benchmarks.scale --help`.
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
from benchmarks.work import Job, Times


@dataclass(frozen=True)
class Part:
    """A stretch of a sweep, by the order of its reports.

    Attributes:
        per_s: reports per second.
        cpu_s: of the driving process, per report.
        median_wait_s, p99_wait_s: between two reports of a trial.
        silence_s: the longest time without a report of any trial.
        blocked_s: the longest turn of the driver's event loop; None where it is not known.
        rss: of the driving process at its end (bytes).
    """

    per_s: float
    cpu_s: float
    median_wait_s: float
    p99_wait_s: float
    silence_s: float
    blocked_s: float | None
    rss: int


Gaps = Sequence[tuple[float, float]]
"""Long turns of the driver's event loop: when each ended (Unix seconds), and its seconds."""


def part(
    times: Sequence[Times], samples: Sequence[Sample], gaps: Gaps | None, begin: float, end: float
) -> Part:
    """What happened between two moments (Unix seconds)."""
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
        blocked_s=_longest(gaps, begin, end),
        rss=inside[-1].rss,
    )


def _longest(gaps: Gaps | None, begin: float, end: float) -> float | None:
    if gaps is None:
        return None
    return max((seconds for ended, seconds in gaps if begin <= ended <= end), default=0.0)


def quarters(times: Sequence[Times], outcome: Outcome, gaps: Gaps | None) -> list[Part]:
    """The sweep in four stretches of as many reports each."""
    reports = sorted(r for trial in times for r in trial.reports)
    cuts = [reports[i * (len(reports) - 1) // 4] for i in range(5)]
    return [part(times, outcome.samples, gaps, a, b) for a, b in pairwise(cuts)]


def table(parts: Sequence[Part]) -> str:
    """The stretches as Markdown, one a line."""
    lines = [
        "| quarter | reports/s | driver's CPU a report | wait, median | wait, 99 % |"
        " longest silence | loop's longest turn | driver's memory |",
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
    add("--at-once", type=int, default=4, help="trials at once, of one worker each")
    add("--only", choices=("ours", "ray"), default="ours", help="ray: its recipe, 15 s a trial")
    add("--timeout", type=float, default=3600, help="seconds")
    return parser.parse_args()


def main() -> None:
    """Measure, print, and leave nothing behind unless something failed."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was started is ended too
    given = _arguments()
    cpus = min(1.0, int(100 * cores() / given.at_once) / 100)
    job = Job(given.trials, given.reports, 0.0, 1, given.at_once, cpus, 0, given.reports)
    contender, folder = CONTENDERS[given.only], Path(tempfile.mkdtemp(prefix="tune-bench-"))
    command = contender.command(job, folder)
    beats = folder / "beats.json"
    if given.only == "ours":
        command = [sys.executable, "-m", "benchmarks.beats", str(beats), *command[3:]]
    outcome = run(command, folder / "output.log", given.timeout, contender.env)
    times = contender.collect(folder)
    gaps = json.loads(beats.read_text()) if beats.exists() else None
    print(
        f"{contender.title}: {job.trials} trials of {job.reports} reports, {job.at_once} at once, "
        f"{outcome.wall_s:.0f} s in all\n\n{table(quarters(times, outcome, gaps))}\n\n{machine()}"
    )
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
