"""Measures the time from the command to the first report, of `tune run` and `tune resume`.

`python -m benchmarks.resume --help`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.machine import machine
from benchmarks.process import ROOT, started

NAMES = ("tune run", "tune resume", "tune run, after tune up", "tune run, directly after that")
_ENV = {"PYTHONPATH": str(ROOT)}  # the file of the trainable imports this package
REPORTS = 100_000
"""More than a trial makes before the run is ended."""


def write_sweep(folder: Path, workers: int) -> Path:
    """Write a sweep file of one trial that reports ten times a second and saves no checkpoint."""
    sweep = {
        "name": "first",
        "trainable": f"{ROOT / 'benchmarks' / 'trivial.py'}:Trivial",
        "metric": "loss",
        "space": {"x": {"uniform": [0.0, 1.0]}},
        "fixed": {"learning_rate": 0.01, "reports": REPORTS, "step_s": 0.1},
        "scheduler": {"name": "none"},
        "budget": {"trials": 1},
        "resources": {"workers": workers, "cpus_per_worker": 1 / workers, "gpus_per_worker": 0},
        "storage": str(folder),
    }
    file = folder / "sweep.yaml"
    file.write_text(json.dumps(sweep, indent=1))  # YAML 1.2 holds JSON
    return file


def first_report(
    command: Sequence[str], folder: Path, timeout_s: float, name: str = "first", stay_s: float = 0
) -> float:
    """Seconds from the start of a command to the sweep's next report.

    The command is ended `stay_s` seconds after that report.
    """
    file = folder / name / "trials" / "t0000" / "reports.jsonl"
    before = _size(file)
    with started(command, folder / "output.log", _ENV) as process:
        start = time.monotonic()
        while _size(file) == before:
            if process.poll() is not None or time.monotonic() - start > timeout_s:
                raise SystemExit(f"no report: {(folder / 'output.log').read_text()[-2000:]}")
            time.sleep(0.01)
        seconds = time.monotonic() - start
        time.sleep(stay_s)
        return seconds  # leaving the block sends Ctrl-C to the command


def _size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0


def measure(workers: int, timeout_s: float, stay_s: float) -> tuple[float, ...]:
    """Seconds to the first report of a run, of its resume, of one after `tune up`, which goes on
    for `stay_s` seconds, and of one directly after that.
    """
    with tempfile.TemporaryDirectory(prefix="tune-bench-") as name:
        folder = Path(name)
        tune = [sys.executable, "-m", "tuning"]
        run = [*tune, "run", str(write_sweep(folder, workers))]
        resume = [*tune, "resume", str(folder / "first")]
        cold = first_report(run, folder, timeout_s), first_report(resume, folder, timeout_s)
        output = folder / "up.log"
        with started([*tune, "up", str(folder / "sweep.yaml")], output, _ENV) as up:
            if up.wait(timeout_s):
                raise SystemExit(output.read_text())
        try:
            warm, again = ([*run, "--name", name] for name in ("warm", "again"))
            first = first_report(warm, folder, timeout_s, "warm", stay_s)
            return *cold, first, first_report(again, folder, timeout_s, "again")
        finally:
            with started([*tune, "down"], output, _ENV) as down:
                down.wait(timeout_s)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.resume", description=__doc__)
    parser.add_argument("--repeats", type=int, default=3, help="runs and resumes")
    parser.add_argument("--workers", type=int, default=2, help="DDP workers of the trial")
    parser.add_argument("--timeout", type=float, default=300, help="seconds for each")
    parser.add_argument("--stay", type=float, default=40, help="seconds of the run after tune up")
    given = parser.parse_args()
    load = os.getloadavg()[0]
    seconds = [measure(given.workers, given.timeout, given.stay) for _ in range(given.repeats)]
    print("| command | first report after, median | fastest | slowest |\n|---|---:|---:|---:|")
    for name, values in zip(NAMES, zip(*seconds, strict=True), strict=True):
        low, middle, high = min(values), statistics.median(values), max(values)
        print(f"| `{name}` | {middle:.1f} s | {low:.1f} s | {high:.1f} s |")
    print(
        f"\n{given.repeats} of each, {given.workers} workers; {machine()}; load before: {load:.1f}"
    )


if __name__ == "__main__":
    main()
