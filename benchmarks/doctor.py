"""The time of `tune doctor` with many workers that share the cores of this machine.

    python -m benchmarks.doctor [--workers 20] [--limit 180]

Runs the program as a user would, with the built-in model of 0.1 M parameters, and prints the phases
on the head and of the workers as tables. Exit code 1 if a sweep would fail here or the rehearsal
took longer than the limit (seconds).
Almost all of it is imports: the CPU seconds of the workers divided by the cores are the least that
it can take, and what other programs use of the cores comes on top.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.machine import cores, machine
from benchmarks.process import run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=20)
    parser.add_argument("--limit", type=float, default=180.0)
    given = parser.parse_args()
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        environment = {"TUNE_STORAGE": folder, "CHECKPOINT_DIR": f"{folder}/checkpoints"}
        command = [sys.executable, "-m", "tuning", "doctor", "--workers", str(given.workers)]
        outcome = run(command, Path(folder) / "log", 10 * given.limit, environment)
        made = Path(folder) / "checkpoints" / "model" / "tiny" / "rehearsal.json"
        found = json.loads(made.read_text())
    print(f"{machine()}; {time.strftime('%-d %B %Y')}\n")
    used = sum(worker["cpu_time"] for worker in found["workers"])
    print(f"{given.workers} workers: {outcome.wall_s:.0f} s, {len(found['findings'])} findings;")
    print(f"{used:.0f} CPU seconds of the workers, {used / cores():.0f} s on {cores()} cores;")
    print(f"1-minute load before the start {load:.1f}\n")
    print("| head | s |\n| --- | ---: |")
    for name, value in found["head"].items():
        if name.endswith("_time"):
            print(f"| {name} | {value:.2f} |")
    print("\n| worker | min | mean | max |\n| --- | ---: | ---: | ---: |")
    for name, values in found["statistics"].items():
        print(f"| {name} | {values['min']:.3g} | {values['mean']:.3g} | {values['max']:.3g} |")
    if outcome.wall_s > given.limit:
        raise SystemExit(f"longer than {given.limit:g} s")


if __name__ == "__main__":
    main()
