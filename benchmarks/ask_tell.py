"""Trials per second by ask and tell: `Sweep`, beside Optuna's study with a journal of its own.

    python -m benchmarks.ask_tell --trials 500 --before 4500

Both have the same space and searcher, and write to the same disk. `Sweep` also writes each trial's
record and reports. Optuna's study begins empty. The median of the repetitions is printed, with the
seconds of the processor that a trial takes, which the load of the machine changes less.
"""

from __future__ import annotations

import argparse
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


def _timed(run: Callable[[], None]) -> tuple[float, float]:
    wall, processor = time.perf_counter(), time.process_time()
    run()
    return time.perf_counter() - wall, time.process_time() - processor


def measure(run: Callable[[Path], tuple[float, float]], trials: int, rounds: int) -> str:
    """The cells of a row: trials per second, and milliseconds of the processor per trial."""
    spent = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory(prefix="ask_tell.") as folder:
            spent.append(run(Path(folder)))
    wall, processor = (median(column) for column in zip(*spent, strict=True))
    return f"{trials / wall:,.0f} | {processor / trials * 1e3:.1f}"


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=500, help="trials of each kind")
    parser.add_argument("--before", type=int, default=20, help="trials that are told before these")
    parser.add_argument("--searchers", nargs="*", default=SEARCHERS, choices=SEARCHERS)
    parser.add_argument("--rounds", type=int, default=3, help="repetitions, whose median counts")
    args = parser.parse_args()
    n, before = args.trials, args.before
    warnings.filterwarnings("ignore", module="optuna")
    print(machine())
    print("\n| | trials per second | ms of the processor per trial |\n| --- | ---: | ---: |")
    for name in args.searchers:
        rows = {
            "`ask()`, `tell`": partial(ours, name, n, 1, before),
            f"`ask({n})`, `batched`": partial(ours, name, n, n, before),
            "Optuna's `ask`, `tell`": partial(optunas, name, n),
        }
        for title, run in rows.items():
            print(f"| {name}, {title} | {measure(run, n, args.rounds)} |", flush=True)


if __name__ == "__main__":
    main()
