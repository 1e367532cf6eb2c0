"""Trials per second by ask and tell: `Sweep`, beside Optuna's study with a journal of its own.

    python -m benchmarks.ask_tell --trials 500 --before 4500

Both have the same space and searcher, and write to the same disk. `Sweep` also writes each trial's
record and reports. Optuna's study begins empty. The row of files creates as many as `Sweep`, and
nothing else. The median of the repetitions is printed, with the time of the processor for a trial,
which the load of the machine changes less.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from statistics import median

import tuning
from benchmarks.machine import machine

SEARCHERS = ("random", "sobol", "tpe")
Run = Callable[[Path], tuple[float, float]]
"""Seconds, and seconds of the processor, for all trials; gets a new folder."""


def ours(searcher: str, trials: int, batch: int, before: int, folder: Path) -> tuple[float, float]:
    """Seconds, and seconds of the processor, to ask for all trials in batches and to tell them."""
    sweep = tuning.Sweep(
        metric="loss",
        space={
            "x": tuning.uniform(0, 1),
            "rate": tuning.loguniform(1e-4, 1),
            "size": {"choice": [1, 2]},
        },
        budget=tuning.Budget(trials=trials + before + 1),
        search=tuning.Search(name=searcher),
        storage=folder,
    )

    def run(count: int, batch: int) -> None:
        for _ in range(count // batch):
            asked = sweep.ask(batch)
            with sweep.batched() if batch > 1 else nullcontext():
                for trial in asked:
                    sweep.tell(trial, {"loss": trial.params["x"]})

    run(before, before)
    spent = _timed(lambda: run(trials, batch))
    sweep.close()
    return spent


def optunas(searcher: str, trials: int, folder: Path) -> tuple[float, float]:
    """The same of `study.ask` with the distributions given, and `study.tell`."""
    import optuna
    from optuna.distributions import CategoricalDistribution, FloatDistribution
    from optuna.storages.journal import JournalFileBackend

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    samplers = {
        "random": optuna.samplers.RandomSampler,
        "sobol": optuna.samplers.QMCSampler,
        "tpe": optuna.samplers.TPESampler,
    }
    storage = optuna.storages.JournalStorage(JournalFileBackend(str(folder / "study.journal")))
    study = optuna.create_study(storage=storage, sampler=samplers[searcher](seed=0))
    space = {
        "x": FloatDistribution(0, 1),
        "rate": FloatDistribution(1e-4, 1, log=True),
        "size": CategoricalDistribution([1, 2]),
    }

    def run() -> None:
        for _ in range(trials):
            trial = study.ask(space)
            study.tell(trial, trial.params["x"])

    return _timed(run)


def files(trials: int, folder: Path) -> tuple[float, float]:
    """The same of what `Sweep` does with the disk for a batch: a folder and two files per trial."""

    def run() -> None:
        for number in range(trials):
            trial = folder / str(number)
            trial.mkdir()
            (trial / "reports.jsonl").write_bytes(b"x" * 120)
            (trial / ".trial.json").write_bytes(b"x" * 700)
            os.replace(trial / ".trial.json", trial / "trial.json")
        os.sync()

    return _timed(run)


def _timed(run: Callable[[], None]) -> tuple[float, float]:
    wall, processor = time.perf_counter(), time.process_time()
    run()
    return time.perf_counter() - wall, time.process_time() - processor


def measure(run: Run, trials: int, rounds: int, folder: Path) -> str:
    """The cells of a row: trials per second, and milliseconds of the processor per trial."""
    spent = []
    for _ in range(rounds):
        spent.append(run(Path(tempfile.mkdtemp(prefix="run.", dir=folder))))
    wall, processor = (median(column) for column in zip(*spent, strict=True))
    return f"{trials / wall:,.0f} | {processor / trials * 1e3:.1f}"


def rows(searcher: str, trials: int, batch: int, before: int) -> dict[str, Run]:
    """What is measured of a searcher, by the title of its row."""
    return {
        f"{searcher}, `ask()`, `tell`": partial(ours, searcher, trials, 1, before),
        f"{searcher}, `ask({batch})`, `batched`": partial(ours, searcher, trials, batch, before),
        f"{searcher}, Optuna's `ask`, `tell`": partial(optunas, searcher, trials),
    }


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=500, help="trials of each kind")
    parser.add_argument("--batch", type=int, default=100, help="trials that are asked for at once")
    parser.add_argument("--before", type=int, default=20, help="trials that are told before these")
    parser.add_argument("--searchers", nargs="*", default=SEARCHERS, choices=SEARCHERS)
    parser.add_argument("--rounds", type=int, default=3, help="repetitions, whose median counts")
    parser.add_argument("--folder", type=Path, help="of the files; default: the temporary one")
    args = parser.parse_args()
    warnings.filterwarnings("ignore", message=".*is experimental")
    print(machine())
    print("\n| | trials per second | ms of the processor per trial |\n| --- | ---: | ---: |")
    measured: dict[str, Run] = {"the files alone": partial(files, args.trials)}
    for name in args.searchers:
        measured |= rows(name, args.trials, args.batch, args.before)
    with tempfile.TemporaryDirectory(prefix="ask_tell.", dir=args.folder) as made:
        # ext4 creates files slowly for a while after it has removed some: all stay until the end
        for title, run in measured.items():
            cells = measure(run, args.trials, args.rounds, Path(made))
            print(f"| {title} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
