"""`tune ls`: the sweeps of a storage, read from their folders."""

from __future__ import annotations

import gc
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from itertools import compress
from typing import TYPE_CHECKING, Any

from search_spaces.errors import DamagedRecordsError, UserError
from tuning.cli.formatting import echo, make_console, number
from tuning.cli.json_output import print_json
from tuning.cli.options import Json, StorageDir

if TYPE_CHECKING:
    from results.paths import Storage, SweepPaths
    from results.records.pipeline import PipelinePaths
    from tuning.cli.table import Cell

_TITLES = ("sweep", "state", "trials", "best", "metric", "hours", "started", "by", "trainable")


def ls(storage: StorageDir = None, json_: Json = False) -> None:
    """List the sweeps of a storage, and the stages of pipelines.

    In a storage of several people, with those who began them.

    Example: tune ls
    """
    from results.records.pipeline import pipelines_in
    from results.sweep_folder.folder import named_sweeps, resolve_storage

    root = resolve_storage(storage)
    if storage is not None and not root.root.is_dir():
        raise UserError(f"storage {root.root}: no such folder")
    found, problems = list[dict[str, Any]](), list[str]()
    pipelines = [(one.name, partial(_pipeline_facts, one)) for one in pipelines_in(root)]
    sweeps = [(name, partial(_sweep_facts, paths, problems)) for name, paths in named_sweeps(root)]
    for name, read in (*pipelines, *sweeps):
        try:
            with no_garbage_collection():
                found.append({"name": name, **read()})
        except UserError as e:
            found.append({"name": name, "state": "damaged"})
            problems.append(f"{name} is damaged: {e.problems[0]}")
    if json_:
        print_json({"storage": root.root, "sweeps": found})
    elif found:
        _print_table(found, root)
    else:
        echo(f"no sweeps in {root.root}; start one with: tune run FILE")
    if problems:
        raise DamagedRecordsError(*problems)


def _print_table(found: list[dict[str, Any]], root: Storage) -> None:
    from results.storage.sharing import is_shared
    from tuning.cli.table import Table

    shown = [title != "by" or is_shared(root.root) for title in _TITLES]
    rows = [[*compress(_cells(one), shown)] for one in found]
    flexible, optional = ("metric", "trainable", "hours"), ("trainable", "started", "by", "hours")
    titles = [*compress(_TITLES, shown)]
    make_console().print(Table.of(titles, rows, flexible=flexible, optional=optional))


def _cells(one: dict[str, Any]) -> list[str | Cell]:
    """What the table says of a sweep or pipeline."""
    if one["state"] == "damaged":
        return [one["name"], ("damaged", "red"), *[""] * (len(_TITLES) - 2)]
    began = one["started"]
    date = time.strftime("%Y-%m-%d", time.localtime(began)) if began else "-"
    start = [one["name"], one["state"]]
    if one["kind"] == "pipeline":
        stages = f"{one['done']}/{one['stages']} stages"
        return [*start, stages, "-", "-", "-", date, "-", "pipeline"]
    cost = one["cost"]
    hours = f"{cost['cpu_hours']:.2f} CPU"
    hours += f", {cost['gpu_hours']:.2f} GPU" if cost["gpu_hours"] else ""
    hours += f", {cost['cost']:,.2f} {cost['currency']}" if cost["currency"] else ""
    return [
        *start,
        f"{one['tried']}/{one['trials']}" if one["trials"] else str(one["tried"]),
        ", ".join(map(number, one["best"].values())),
        ", ".join(f"{mode} {metric}" for metric, mode in one["objectives"].items()),
        hours,
        date,
        one["by"] or "-",
        re.sub(r"\S*/|-[0-9a-f]{64}\.py.*|(?<=\.py):.*", "", one["trainable"]),
    ]


def _pipeline_facts(paths: PipelinePaths) -> dict[str, Any]:
    """Its state and its number of stages; those of its sweeps follow."""
    from results.models.stages import read_stages
    from results.sweep_folder.lock import current_driver
    from search_spaces.loading.reader import read_file

    names, records = [s["name"] for s in read_file(paths.spec).data["stages"]], read_stages(paths)
    done = sum(name in records.stages and records.stages[name].done for name in names)
    state = "done" if done == len(names) else "interrupted"
    if current_driver(paths.lock):
        state = "running"
    began = min((record.began for record in records.stages.values()), default=None)
    counts = {"done": done, "stages": len(names)}
    return {"kind": "pipeline", "state": state, **counts, "started": began}


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """For a block that reads many records: looking for cycles among them takes a third of it."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _sweep_facts(paths: SweepPaths, problems: list[str]) -> dict[str, Any]:
    """What is known of a sweep; what is wrong with its records is added to the problems."""
    from results.analysis.cost import close_silent_attempts, total_cost
    from results.analysis.leaderboard import rank_trials, summarize
    from results.records.integrity import check_records
    from results.records.spec_file import read_spec
    from results.sweep_folder.folder import read_state
    from results.sweep_folder.lock import sweep_state
    from tuning.cli.summary import winner

    found = check_records(paths, keep=True)
    readable, spec = found.readable, read_spec(found.paths)
    trials = close_silent_attempts(
        readable, found.last_reports([o.metric for o in spec.objectives])
    )
    metric, mode = spec.metric, spec.mode  # each computed at every use
    board = rank_trials([summarize(*trial, metric, mode) for trial in trials], mode)
    is_plain = spec.select.at == "last" and not spec.select.objectives
    chosen = winner(readable, spec, trials if is_plain else None)
    best = chosen and chosen.line
    values = [(o.metric, best.values.get(o.metric) if best else None) for o in spec.objectives]
    recorded = read_state(readable)
    state = sweep_state(readable, spec, sum(e.record.state.finished for e in board))
    problems += found.words if found.problems else []
    return {
        "kind": "sweep",
        "state": state,
        "tried": sum(not e.record.state.active for e in board),
        "trials": spec.budget.trials and max(spec.budget.trials, len(board)),
        "winner": best.record.id if best else None,
        "best": {**dict(values), metric: best.value if best else None},
        "objectives": {o.metric: o.mode for o in spec.objectives},
        "trainable": f"command: {spec.command[0]}" if spec.command else spec.trainable,
        "started": next(iter(recorded.started), None),
        "by": recorded.by or None,
        "cost": asdict(total_cost((e.record for e in board), spec.prices)),
    }
