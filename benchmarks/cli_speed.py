"""Measures the duration of `tune` commands, each a new process, on a sweep of many trials.

`python -m benchmarks.cli_speed --help`.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.process import ROOT
from results.paths import SweepPaths
from results.records.record_log import log_current
from results.records.reports import Report, dump_reports
from results.records.trial import Attempt, TrialRecord, TrialState
from search_spaces.checksum import add_json_checksum
from search_spaces.loading.sweep_file import load_sweep
from tuning.controller.attempts import count_reports, end_attempt
from tuning.controller.sweep_dir.create import create_sweep

BEGAN = 1_700_000_000.0
TARGETS: dict[tuple[str, ...], float] = {
    ("--help",): 0.4,
    ("ls",): 1.0,
    ("best", "large", "--json"): 2.0,
    ("show", "large"): 2.0,
}
"""The longest acceptable duration of each command on an idle machine, in seconds."""


def make_sweep(storage: Path, trials: int, reports: int) -> SweepPaths:
    """Write a finished sweep of digits, without training: trial i has the accuracy i / trials."""
    overrides = [f"budget.trials={trials}", f"scheduler.max_t={reports}", f"fixed.epochs={reports}"]
    loaded = load_sweep(ROOT / "search_spaces" / "digits.yaml", overrides)
    paths = create_sweep(loaded, "large", str(storage))
    for number in range(trials):
        _write_trial(paths, number, number / trials, reports, loaded.spec.fixed)
    records = [paths.trial(trial_id).record for trial_id in paths.trial_ids()]
    for _ in range(3):  # a driver writes each at the start, and at the end of an attempt and trial
        log_current(paths, records)
    return paths


def _write_trial(
    paths: SweepPaths, number: int, accuracy: float, reports: int, fixed: dict[str, object]
) -> None:
    params = {
        "hidden_units": 32 << number % 3,
        "num_layers": 1 + number % 3,
        "learning_rate": 10 ** -(1 + 3 * accuracy),
        "weight_decay": 10 ** -(2 + 4 * accuracy),
        "dropout": accuracy / 2,
        "batch_size": 64,
    }
    began, files = BEGAN + number, paths.trial(f"t{number:04d}")
    reported = [
        Report(
            step=step,
            metrics={
                "accuracy": accuracy * step / reports,
                "loss": 2.3 / step,
                "train_loss": 2 / step,
            },
            attempt=1,
            time=began + step,
        )
        for step in range(1, reports + 1)
    ]
    files.checkpoint(reports).mkdir(parents=True)
    files.reports.write_bytes(dump_reports(files, reported))
    record = TrialRecord(
        id=files.root.name,
        number=number,
        params=params,
        config={**fixed, **params},
        seed=number,
        created=began,
        attempts=(Attempt(number=1, started=began, reports=0),),
    )
    update = {"state": TrialState.COMPLETED, "reason": f"max_t at step {reports}"}
    ended = end_attempt(record, ended=began + reports)
    ended = ended.model_copy(update={**update, "end_step": reports})
    record = count_reports(ended, record, files)
    files.record.write_text(add_json_checksum(record.model_dump_json(indent=1)))


def measure(args: tuple[str, ...], storage: Path, runs: int) -> list[float]:
    """Seconds of each of `runs` processes, after a warm-up of the file system's cache."""
    # where it is set, each command compiles the modules again, which an installed package does not
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    env = {**os.environ, "TUNE_STORAGE": str(storage), "PYTHONPATH": str(ROOT)}
    seconds = []
    for _ in range(runs + 1):
        start = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "tuning", *args], env=env, check=True, stdout=subprocess.DEVNULL
        )
        seconds.append(time.perf_counter() - start)
    return seconds[1:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=9, help="processes per command")
    parser.add_argument("--trials", type=int, default=5000)
    parser.add_argument("--reports", type=int, default=20, help="of each trial")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        storage = Path(folder)
        make_sweep(storage, options.trials, options.reports)
        print(f"{options.trials} trials of {options.reports} reports, {options.runs} runs each\n")
        print("| command | median (s) | fastest (s) | target (s) | |")
        print("|---|---:|---:|---:|---|")
        for args, target in TARGETS.items():
            seconds = measure(args, storage, options.runs)
            median = statistics.median(seconds)
            result = "met" if median <= target else "MISSED"
            row = [f"{median:.2f}", f"{min(seconds):.2f}", f"{target:g}", result]
            print(f"| `tune {' '.join(args)}` | {' | '.join(row)} |")


if __name__ == "__main__":
    main()
