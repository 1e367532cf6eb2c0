"""Measures the overhead of a sweep, of three contenders in one run.

They are this platform, a plain script of Ray's own recipe, and Optuna alone as the lower bound.
`python -m benchmarks.overhead --help`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path

from benchmarks import ours
from benchmarks.machine import cores, machine
from benchmarks.process import Outcome, run
from benchmarks.work import TrialTimes, Workload, read_times

Collect = Callable[[Path], list[TrialTimes]]


@dataclass(frozen=True)
class Contender:
    """One way to run the sweep.

    Attributes:
        title: in the table.
        command: returns its command, from the job and a folder.
        collect: reads the trials' times from that folder afterwards.
        at_once: its number of concurrent trials.
        env: environment variables in addition to the caller's.
    """

    title: str
    command: Callable[[Workload, Path], list[str]]
    collect: Collect
    at_once: Callable[[Workload], int] = lambda job: job.at_once
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Row:
    """Measurements of one contender, in seconds, bytes and counts.

    Attributes:
        name, title: of the contender.
        wall_s: from the start of its process to its end.
        first_report_s: from the start of its process to the first report of any trial.
        overhead_s: wall-clock minus the ideal, divided by the number of trials.
        gap_s: median from the end of a trial to the first report of the next on the same lane.
        trial_overhead_s: median from the end of a trial to the end of the next on the same lane,
            minus the work of the latter.
        peak_rss: of the driver process.
        trials, full, reports: all trials, those that made every report, and all reports.
        load: load average of the machine when it began.
        start_s: median from the last report of a trial to the start of the next one's loop.
    """

    name: str
    title: str
    wall_s: float
    first_report_s: float
    overhead_s: float
    gap_s: float | None
    trial_overhead_s: float | None
    peak_rss: int
    trials: int
    full: int
    reports: int
    load: float
    start_s: float | None = None


def _ray(job: Workload, folder: Path) -> list[str]:
    files = [str(folder), str(folder / "times.json")]
    return [sys.executable, "-m", "benchmarks.ray_recipe", job.dumps(), *files]


def _ray_tune(job: Workload, folder: Path) -> list[str]:
    return [*_ray(job, folder), "function"]


def _floor(job: Workload, folder: Path) -> list[str]:
    out = str(folder / "times.json")
    return [sys.executable, "-m", "benchmarks.optuna_floor", job.dumps(), out]


def _written_times(folder: Path) -> list[TrialTimes]:
    return read_times(folder / "times.json")


CONTENDERS = {
    "ours": Contender("this platform, `tune run`", ours.command, ours.times_of_trials),
    "ray": Contender("Ray's own recipe", _ray, _written_times),
    "ray-polled": Contender(
        "Ray's own recipe, polled every 0.2 s (an undocumented setting)",
        _ray,
        _written_times,
        env={"RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.2", "RAY_TRAIN_METRICS_ENABLED": "0"},
    ),
    "loop": Contender("this platform, a Ray Train loop", ours.loop_command, ours.times_of_trials),
    "function": Contender(
        "this platform, a Ray Tune function",
        partial(ours.loop_command, function="tune_function"),
        ours.times_of_trials,
    ),
    "ray-tune": Contender("Ray Tune with Optuna, the function", _ray_tune, _written_times),
    "optuna": Contender("Optuna alone, one process", _floor, _written_times, at_once=lambda job: 1),
}
DEFAULT = ("ours", "ray", "optuna")
LOOPS = ("loop", "function", "ray-tune")
"""Contenders that run the same loop of users, with one worker."""


def measure(name: str, job: Workload, folder: Path, timeout_s: float) -> Row:
    """Run one contender in an empty folder."""
    contender, load = CONTENDERS[name], os.getloadavg()[0]
    folder.mkdir()
    command = contender.command(job, folder)
    outcome = run(command, folder / "output.log", timeout_s, contender.env)
    times = contender.collect(folder)
    if len(times) != job.trials or not all(t.reports for t in times):
        raise SystemExit(f"{name} ran {len(times)} of {job.trials} trials; see {folder}")
    return summarise(name, job, outcome, times, load)


def summarise(
    name: str, job: Workload, outcome: Outcome, times: Sequence[TrialTimes], load: float
) -> Row:
    """Compute a contender's row from the times of its trials."""
    at_once = CONTENDERS[name].at_once(job)
    reports = sum(len(t.reports) for t in times)
    after = [(b, b.reports[0] - a.ended, b.ended - a.ended) for a, b in successors(times, at_once)]
    spent = [cycle - len(trial.reports) * job.step_s for trial, _, cycle in after]
    starts = [b.began - a.reports[-1] for a, b in successors(times, at_once) if b.began is not None]
    return Row(
        name=name,
        title=CONTENDERS[name].title,
        wall_s=outcome.wall_s,
        first_report_s=min(t.reports[0] for t in times) - outcome.began,
        overhead_s=(outcome.wall_s - reports * job.step_s / at_once) / job.trials,
        gap_s=statistics.median(gap for _, gap, _ in after) if after else None,
        trial_overhead_s=statistics.median(spent) if spent else None,
        peak_rss=outcome.peak_rss,
        trials=len(times),
        full=sum(len(t.reports) == job.reports for t in times),
        reports=reports,
        load=load,
        start_s=statistics.median(starts) if starts else None,
    )


def successors(times: Sequence[TrialTimes], lanes: int) -> list[tuple[TrialTimes, TrialTimes]]:
    """Each trial with the next one on the same lane.

    Records do not name the lane of a trial. It is assumed to be the lane that was free first.
    """
    on: list[list[TrialTimes]] = [[] for _ in range(lanes)]
    for trial in sorted(times, key=lambda t: t.reports[0]):
        min(on, key=lambda lane: lane[-1].ended if lane else 0.0).append(trial)
    return [pair for lane in on for pair in pairwise(lane)]


def table(rows: Sequence[Row]) -> str:
    """The rows as Markdown."""
    head = (
        "",
        "wall-clock",
        "ratio to Ray's recipe",
        "first report after",
        "overhead per trial",
        "last report to the next loop",
        "gap between trials",
        "overhead per later trial",
        "driver's peak memory",
        "trials (in full)",
        "reports",
    )
    ray = next((r.wall_s for r in rows if r.name == "ray"), None)
    lines = [head, ("---", *["---:"] * (len(head) - 1)), *(_cells(row, ray) for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cells(row: Row, ray_s: float | None) -> tuple[str, ...]:
    return (
        row.title,
        f"{row.wall_s:.1f} s",
        f"{row.wall_s / ray_s:.3f}" if ray_s else "-",
        f"{row.first_report_s:.1f} s",
        f"{row.overhead_s:.2f} s",
        f"{row.start_s:.2f} s" if row.start_s is not None else "-",
        f"{row.gap_s:.2f} s" if row.gap_s is not None else "-",
        f"{row.trial_overhead_s:.2f} s" if row.trial_overhead_s is not None else "-",
        f"{row.peak_rss / 2**20:.0f} MiB",
        f"{row.trials} ({row.full})",
        str(row.reports),
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.overhead",
        description=__doc__,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("--trials", type=int, default=48, help="trials of the sweep")
    add("--reports", type=int, default=5, help="reports of a trial that is not stopped early")
    add("--work", type=float, default=0.25, help="seconds of work of such a trial")
    add("--workers", type=int, default=2, help="DDP workers of a trial")
    add("--at-once", type=int, default=2, help="concurrent trials, which share the cores")
    add("--seed", type=int, default=0, help="of the search")
    add("--only", nargs="+", choices=CONTENDERS, default=DEFAULT, help="contenders to measure")
    add("--timeout", type=float, default=1800, help="seconds for each")
    add("--loops", action="store_true", help="loops of users, with one worker")
    add("--json", type=Path, help="a file for the figures")
    return parser.parse_args()


def main() -> None:
    """Measure and print; keep the files only if something failed."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # ends the started processes too
    given = _arguments()
    workers = 1 if given.loops else given.workers
    ranks = workers * given.at_once
    cpus = min(1.0, int(100 * cores() / ranks) / 100)
    job = Workload(
        given.trials, given.reports, given.work, workers, given.at_once, cpus, given.seed
    )
    folder, rows = Path(tempfile.mkdtemp(prefix="tune-bench-")), []
    for name in LOOPS if given.loops else given.only:
        print(f"{CONTENDERS[name].title} …", file=sys.stderr, flush=True)
        rows.append(measure(name, job, folder / name, given.timeout))
        print(f"  {rows[-1].wall_s:.1f} s", file=sys.stderr, flush=True)
    print(
        f"\n{job.trials} trials of {job.reports} reports and {job.work_s:g} s of work, "
        f"{job.workers} DDP workers each, {job.at_once} trials at once\n\n{table(rows)}\n\n"
        f"{machine()}; load when each began: {', '.join(f'{r.load:.1f}' for r in rows)}"
    )
    if given.json:
        figures = {"job": asdict(job), "machine": machine(), "rows": [asdict(r) for r in rows]}
        given.json.write_text(json.dumps(figures, indent=1))
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
