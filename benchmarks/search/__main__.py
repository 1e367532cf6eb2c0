"""python -m benchmarks.search LCBENCH_FOLDER [--seeds 5] [--slow] [--out FILE]

Searchers and schedulers in simulated time over learning curves: this platform's, Ray's, Optuna's
and, with --slow, Syne Tune's. Cells that are in FILE are not run again, so that it can be killed
and started again. Defaults were chosen on every other task (`--half choose`); what is reported is
the rest (`--half show`).
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache, partial
from pathlib import Path

import numpy as np

from benchmarks.search.ours import Ours
from benchmarks.search.peers import OptunaHyperband, RayOptuna
from benchmarks.search.simulate import Contender, run
from benchmarks.search.syne_tune import SyneTune
from benchmarks.search.tables import Cell, tables
from benchmarks.search.tasks import Task, lcbench, misleading, scale

REFERENCE = "auto + asha_promote"
CONTENDERS: dict[str, Callable[[Task, int], Contender]] = {
    REFERENCE: partial(Ours, searcher="auto", scheduler="asha_promote"),
    "auto + asha": partial(Ours, searcher="auto", scheduler="asha"),
    "tpe + asha_promote": partial(Ours, searcher="tpe", scheduler="asha_promote"),
    "Ray OptunaSearch + ASHAScheduler": RayOptuna,
    "Optuna TPE + HyperbandPruner": OptunaHyperband,
    "random + asha": partial(Ours, searcher="random", scheduler="asha"),
    "random": partial(Ours, searcher="random", scheduler="none"),
}
SLOW: dict[str, Callable[[Task, int], Contender]] = {
    "Syne Tune HyperTune": partial(SyneTune, method="HyperTune"),
    "Syne Tune MOBSTER": partial(SyneTune, method="MOBSTER"),
}
Key = tuple[str, str, int, str]
"""Family, task, seed, contender."""


def main() -> None:
    args = _arguments()
    tasks = [
        task for task in _tasks(args.lcbench, args.half, args.tasks) if task.family in args.families
    ]
    contenders = args.only or [*CONTENDERS, *(SLOW if args.slow else ())]
    wanted = [
        (task.family, task.name, seed, name)
        for seed in range(args.seeds)
        for task in tasks
        for name in contenders
    ]
    done = {_key(cell): cell for cell in _read(args.out)}
    left = [cell for cell in wanted if cell not in done]
    print(f"{len(wanted) - len(left)} of {len(wanted)} cells are in {args.out}", flush=True)
    if not args.only_show:
        _run(args, left, done)
    print(tables([done[cell] for cell in wanted if cell in done], REFERENCE))


def _run(args: argparse.Namespace, left: list[Key], done: dict[Key, Cell]) -> None:
    """Run what is left, and write each cell as it ends."""
    with ProcessPoolExecutor(args.processes) as pool, args.out.open("a") as out:
        running = {pool.submit(_cell, args.lcbench, cell): cell for cell in left}
        for ended in as_completed(running):
            cell = ended.result()
            done[_key(cell)] = cell
            print(json.dumps(cell), file=out, flush=True)
            print(f"{'  '.join(map(str, _key(cell)))}  {cell['best'][-1]:.4g}", flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("lcbench", type=Path, help="folder with model.onnx and encoding.json")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--slow", action="store_true", help="Syne Tune too: $SYNE_TUNE_PYTHON")
    parser.add_argument("--only", nargs="+", choices=[*CONTENDERS, *SLOW], metavar="CONTENDER")
    parser.add_argument("--families", nargs="+", default=["lcbench", "misleading"])
    parser.add_argument("--half", choices=["choose", "show"], default="show")
    parser.add_argument("--tasks", type=int, default=16, help="of each family, at most")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument(
        "--only-show", action="store_true", help="run nothing: the cells that are in FILE"
    )
    parser.add_argument("--out", type=Path, default=Path("search_benchmark.jsonl"))
    return parser.parse_args()


@cache
def _families(folder: Path) -> tuple[list[Task], list[Task]]:
    return lcbench(folder), misleading(32)


def _tasks(folder: Path, half: str, count: int) -> list[Task]:
    """Every other task of each family."""
    first = 0 if half == "choose" else 1
    return [task for family in _families(folder) for task in family[first::2][:count]]


@cache
def _scale(folder: Path, family: str, name: str) -> tuple[float, float]:
    return scale(_task(folder, family, name))


def _task(folder: Path, family: str, name: str) -> Task:
    tasks = (task for tasks in _families(folder) for task in tasks)
    return next(t for t in tasks if (t.family, t.name) == (family, name))


def _cell(folder: Path, key: Key) -> Cell:
    """Run one sweep."""
    family, name, seed, contender = key
    task = _task(folder, family, name)
    low, high = _scale(folder, family, name)
    outcome = run(task, {**CONTENDERS, **SLOW}[contender](task, seed), seed)
    return {
        "family": family,
        "task": name,
        "seed": seed,
        "contender": contender,
        "low": low,
        "high": high,
        "best": [round(best, 6) for best in outcome.best],
        "asks": len(outcome.asks),
        "median": round(float(np.median(outcome.asks)), 4),
        "slowest": round(max(outcome.asks), 4),
    }


def _key(cell: Cell) -> Key:
    return cell["family"], cell["task"], cell["seed"], cell["contender"]


def _read(path: Path) -> Iterator[Cell]:
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            yield json.loads(line)
        except ValueError:  # torn by a kill
            continue


if __name__ == "__main__":
    main()
