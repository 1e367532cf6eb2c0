"""python -m benchmarks.search.proposals [--trials 500]

CPU seconds per proposal of `auto` in a sweep with this many trials and 7 parameters. At each rung a
third of the trials continued.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from benchmarks.search.ours import Ours
from benchmarks.search.tasks import LCBench

ASKS = 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=500)
    trials = parser.parse_args().trials
    seconds = proposals(trials)
    print(
        f"{trials} trials: median {np.median(seconds):.3f} s, at most {max(seconds):.3f} s "
        f"of {len(seconds)} proposals"
    )


def proposals(trials: int) -> list[float]:
    """CPU seconds of each of the last `ASKS` proposals."""
    task = LCBench("made up", 0, session=None)
    sweep = Ours(task, 0, searcher="auto", scheduler="asha_promote")
    seconds: list[float] = []
    proposed: set[str] = set()
    while len(proposed) < trials:
        started = time.process_time()
        attempt = sweep.next()
        if attempt.trial not in proposed:
            seconds.append(time.process_time() - started)
            proposed.add(attempt.trial)
        aim = 1 - attempt.config["momentum"] + attempt.config["max_dropout"] / 10
        epoch = attempt.epoch + 1
        while epoch < task.epochs and sweep.report(attempt.trial, epoch, aim + 1 / epoch):
            epoch += 1
        if epoch == task.epochs:
            sweep.report(attempt.trial, epoch, aim + 1 / epoch)
    sweep.close()
    return seconds[-ASKS:]


if __name__ == "__main__":
    main()
