"""Compares TPE that learns from all trials with TPE that learns from a bounded number of them.

    python -m benchmarks.tpe_history --trials 2000 --most 500 100000 --seeds 3

Hartmann's function of six parameters (minimum -3.322), trials one after another.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np

from benchmarks.machine import machine
from results.records.trial import TrialRecord, TrialState
from search_spaces.spec.sweep import SweepSpec
from tuning.search.evidence import ScoreCurves
from tuning.search.study.proposal_sampler import MOST_TRIALS
from tuning.search.study.study import SweepStudy

_ALPHA = np.array([1.0, 1.2, 3.0, 3.2])
_A = np.array(
    [
        [10, 3, 17, 3.5, 1.7, 8],
        [0.05, 10, 17, 0.1, 8, 14],
        [3, 3.5, 1.7, 10, 17, 8],
        [17, 8, 0.05, 10, 0.1, 14],
    ]
)
_P = 1e-4 * np.array(
    [
        [1312, 1696, 5569, 124, 8283, 5886],
        [2329, 4135, 8307, 3736, 1004, 9991],
        [2348, 1451, 3522, 2883, 3047, 6650],
        [4047, 8828, 8732, 5743, 1091, 381],
    ]
)


def hartmann6(x: np.ndarray) -> float:
    """Hartmann's function of six parameters in [0, 1] (Dixon & Szego 1978)."""
    return -float(_ALPHA @ np.exp(-(_A * (x - _P) ** 2).sum(axis=1)))


def spec_of(seed: int, trials: int) -> SweepSpec:
    """A sweep over the function's parameters."""
    raw = {
        "name": "hartmann6",
        "trainable": "digits",
        "metric": "loss",
        "space": {f"x{i}": {"uniform": [0.0, 1.0]} for i in range(6)},
        "scheduler": {"name": "none"},
        "search": {"name": "tpe"},
        "budget": {"trials": trials},
        "seed": seed,
    }
    return SweepSpec.model_validate(raw)


def tell_value(
    study: SweepStudy,
    curves: ScoreCurves,
    number: int,
    params: dict[str, Any],
    value: float,
    state: TrialState,
) -> None:
    """End a trial of a study that minimises, after one report."""
    curves.add(number, 1, -value)
    record = TrialRecord(
        id=f"t{number}",
        number=number,
        params=params,
        config={},
        seed=0,
        created=0.0,
        state=state,
    )
    study.tell(record, [(1, value)])


def run(seed: int, trials: int, most: int) -> tuple[list[float], list[float]]:
    """The values of all trials, and the CPU seconds of each proposal."""
    values, seconds, curves = list[float](), list[float](), ScoreCurves()
    with tempfile.TemporaryDirectory() as folder:
        study = SweepStudy(Path(folder) / "study.journal", "s", spec_of(seed, trials), most)
        for _ in range(trials):
            began = time.process_time()
            number, params = study.ask(curves)
            seconds.append(time.process_time() - began)
            value = hartmann6(np.array([params[f"x{i}"] for i in range(6)]))
            tell_value(study, curves, number, params, value, TrialState.COMPLETED)
            values.append(value)
    return values, seconds


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=2000)
    parser.add_argument("--most", type=int, nargs="+", default=[MOST_TRIALS, 100_000])
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    print(machine())
    print("\n| learns from | best value | median of the last tenth | CPU of the last proposals |")
    print("| ---: | ---: | ---: | ---: |")
    for most in given.most:
        runs = [run(seed, given.trials, most) for seed in range(given.seeds)]
        tenth = given.trials // 10
        best = mean(min(values) for values, _ in runs)
        last = mean(median(values[-tenth:]) for values, _ in runs)
        spent = mean(median(seconds[-tenth:]) for _, seconds in runs)
        print(f"| {most:,} | {best:.4f} | {last:.4f} | {1000 * spent:.1f} ms |", flush=True)


if __name__ == "__main__":
    main()
