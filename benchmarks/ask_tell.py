"""Asks per second: `Sweep.ask`, beside Optuna's `study.ask` with a journal of its own.

    python -m benchmarks.ask_tell --trials 1000

Both have the same space and searcher, and write to the same disk. `Sweep.ask` also writes each
trial's record. The median of the repetitions is printed, with the seconds of the processor that an
ask takes, which the load of the machine changes less.
"""

from __future__ import annotations

import argparse
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

import tuning
from benchmarks.machine import machine

SEARCHERS = ("random", "tpe")
STARTED = 20
"""Trials with an outcome before the first question, so that TPE has a model."""


def ours(searcher: str, trials: int, batch: int, folder: Path) -> tuple[float, float]:
    """Seconds, and seconds of the processor, of all asks in batches."""
    sweep = tuning.Sweep(
        metric="loss",
        space={
            "x": tuning.uniform(0, 1),
            "rate": tuning.loguniform(1e-4, 1),
            "size": {"choice": [1, 2]},
        },
        budget=tuning.Budget(trials=trials + STARTED),
        search=tuning.Search(name=searcher),
        storage=folder,
    )
    for trial in sweep.ask(STARTED):
        sweep.tell(trial, {"loss": trial.params["x"]})
    ask: Callable[[], object] = sweep.ask if batch == 1 else lambda: sweep.ask(batch)
    spent = _timed(ask, trials // batch)
    sweep.close()
    return spent


def optunas(searcher: str, trials: int, folder: Path) -> tuple[float, float]:
    """The same of `study.ask` with the distributions given."""
    import optuna
    from optuna.distributions import CategoricalDistribution, FloatDistribution
    from optuna.storages.journal import JournalFileBackend

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    samplers = {"random": optuna.samplers.RandomSampler, "tpe": optuna.samplers.TPESampler}
    storage = optuna.storages.JournalStorage(JournalFileBackend(str(folder / "study.journal")))
    study = optuna.create_study(storage=storage, sampler=samplers[searcher](seed=0))
    space = {
        "x": FloatDistribution(0, 1),
        "rate": FloatDistribution(1e-4, 1, log=True),
        "size": CategoricalDistribution([1, 2]),
    }
    for _ in range(STARTED):
        trial = study.ask(space)
        study.tell(trial, trial.params["x"])
    return _timed(lambda: study.ask(space), trials)


def _timed(ask: Callable[[], object], times: int) -> tuple[float, float]:
    wall, processor = time.perf_counter(), time.process_time()
    for _ in range(times):
        ask()
    return time.perf_counter() - wall, time.process_time() - processor


def measure(run: Callable[[Path], tuple[float, float]], trials: int, rounds: int) -> str:
    """The cells of a row: asks per second, and milliseconds of the processor per ask."""
    spent = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory(prefix="ask_tell.") as folder:
            spent.append(run(Path(folder)))
    wall, processor = (median(column) for column in zip(*spent, strict=True))
    return f"{trials / wall:,.0f} | {processor / trials * 1e3:.1f}"


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=1000, help="asks of each kind")
    parser.add_argument("--rounds", type=int, default=3, help="repetitions, whose median counts")
    args = parser.parse_args()
    n: int = args.trials
    warnings.filterwarnings("ignore", module="optuna")
    print(machine())
    print("\n| | asks per second | ms of the processor per ask |\n| --- | ---: | ---: |")
    for name in SEARCHERS:
        rows = {
            "`ask()`": partial(ours, name, n, 1),
            f"`ask({n})`": partial(ours, name, n, n),
            "Optuna's `study.ask`": partial(optunas, name, n),
        }
        for title, run in rows.items():
            print(f"| {name}, {title} | {measure(run, n, args.rounds)} |", flush=True)


if __name__ == "__main__":
    main()
