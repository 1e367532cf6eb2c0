"""`tune ls`: the sweeps of a storage, read from their folders."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import compress
from typing import TYPE_CHECKING

import typer

from search_spaces.errors import DamagedRecordsError, UserError
from tuning.cli.formatting import echo, make_console, number
from tuning.cli.options import StorageDir

if TYPE_CHECKING:
    from results.paths import SweepPaths
    from results.records.integrity import Integrity
    from results.records.pipeline import PipelinePaths
    from results.records.reports import Report
    from results.records.trial import TrialRecord
    from search_spaces.spec.budget import PricesSpec
    from search_spaces.spec.sweep import SweepSpec
    from tuning.cli.table import Cell

_TITLES = ("sweep", "state", "trials", "best", "metric", "trainable", "started", "by", "hours")


def ls(storage: StorageDir = None) -> None:
    """List the sweeps of a storage, and of its pipelines: stories/sft.

    In a storage of several people, with those who began them.

    Example: tune ls
    """
    from results.records.pipeline import pipelines_in
    from results.storage.sharing import is_shared
    from results.sweep_folder.folder import named_sweeps, resolve_storage
    from tuning.cli.table import Table

    root = resolve_storage(storage)
    if storage is not None and not root.root.is_dir():
        raise UserError(f"storage {root.root}: no such folder")
    rows: list[list[str | Cell]] = []
    problems: list[str] = []
    shown = [title != "by" or is_shared(root.root) for title in _TITLES]
    pipelines = [(found.name, partial(_pipeline_row, found)) for found in pipelines_in(root)]
    sweeps = [(name, partial(_checked_row, paths, problems)) for name, paths in named_sweeps(root)]
    for name, row in (*pipelines, *sweeps):
        try:
            with no_garbage_collection():
                rows.append([*compress([name, *row()], shown)])
        except UserError as e:
            rows.append([name, ("damaged", "red"), *[""] * (sum(shown) - 2)])
            problems.append(f"{name} is damaged: {e.problems[0]}")
    if not rows:
        echo(f"no sweeps in {root.root}; start one with: tune run FILE")
        return
    make_console().print(
        Table.of(
            [*compress(_TITLES, shown)],
            rows,
            flexible=("metric", "trainable", "hours"),
            optional=("trainable", "started", "by", "hours"),
        )
    )
    for problem in problems:
        echo(problem, err=True)
    if problems:
        raise typer.Exit(DamagedRecordsError.exit_code)


def _pipeline_row(paths: PipelinePaths) -> list[str]:
    """Its state and its number of stages; the rows of its sweeps follow."""
    from results.models.stages import read_stages
    from results.sweep_folder.lock import current_driver
    from search_spaces.loading.reader import read_file

    names, records = [s["name"] for s in read_file(paths.spec).data["stages"]], read_stages(paths)
    done = sum(name in records.stages and records.stages[name].done for name in names)
    state = "done" if done == len(names) else "interrupted"
    if current_driver(paths.lock):
        state = "running"
    began = min((record.began for record in records.stages.values()), default=None)
    date = time.strftime("%Y-%m-%d", time.localtime(began)) if began else "-"
    return [state, f"{done}/{len(names)} stages", "-", "-", "pipeline", date, "-", "-"]


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """For a block that reads many records: looking for cycles among them takes a third of it."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _checked_row(paths: SweepPaths, problems: list[str]) -> list[str]:
    """The row of a sweep; what is wrong with its records is added to the problems."""
    from results.records.integrity import check_records

    found = check_records(paths, keep=True)
    row = _sweep_row(found)
    problems += found.words if found.problems else []
    return row


def _sweep_row(found: Integrity) -> list[str]:
    from results.analysis.leaderboard import rank_trials, summarize
    from results.records.spec_file import read_spec
    from tuning.cli.summary import winner

    paths, spec = found.readable, read_spec(found.paths)
    trials = list(found.last_reports([o.metric for o in spec.objectives]))
    metric, mode = spec.metric, spec.mode  # each computed at every use
    lines = [summarize(*trial, metric, mode) for trial in trials]
    board = rank_trials(lines, spec.mode)
    finished = sum(e.record.state.finished for e in board)
    tried = sum(not e.record.state.active for e in board)
    total = spec.budget.trials
    is_plain = spec.select.at == "last" and not spec.select.objectives
    chosen = winner(paths, spec, trials if is_plain else None)
    best = chosen and chosen.line
    values = [best.value if best else None]
    values += [best.values.get(o.metric) if best else None for o in spec.objectives[1:]]
    state = sweep_state(paths, spec, finished)
    return [
        state,
        f"{tried}/{total}" if total else str(tried),
        ", ".join(map(number, values)),
        ", ".join(f"{o.mode} {o.metric}" for o in spec.objectives),
        f"command: {spec.command[0]}" if spec.command else spec.trainable,
        *_started(paths),
        _hours(trials, spec.prices, running=state == "running"),
    ]


def _started(paths: SweepPaths) -> tuple[str, str]:
    """The date of the first session, and who began the sweep."""
    from results.sweep_folder.folder import read_state

    state = read_state(paths)
    began = time.strftime("%Y-%m-%d", time.localtime(state.started[0])) if state.started else "-"
    return began, state.by or "-"


def _hours(
    trials: Iterable[tuple[TrialRecord, Sequence[Report]]],
    prices: PricesSpec | None,
    *,
    running: bool,
) -> str:
    """The CPU-hours and GPU-hours of all attempts, in short, and their price.

    Attempts that a killed driver left open end at the trial's last report.
    """
    from results.analysis.cost import total_cost
    from tuning.controller.attempts import end_attempt, last_activity

    records = (
        record
        if running or not record.state.active
        else end_attempt(record, ended=last_activity(record, reports))
        for record, reports in trials
    )
    cost = total_cost(records, prices)
    text = f"{cost.cpu_hours:.2f} CPU" + f", {cost.gpu_hours:.2f} GPU" * bool(cost.gpu_hours)
    return text + f", {cost.price}" * (prices is not None)


def sweep_state(paths: SweepPaths, spec: SweepSpec, finished: int) -> str:
    """`running`, `done` or `interrupted`; `finished` is a number of trials.

    A sweep is done if a session recorded the end, or was killed after a limit was reached.
    """
    from results.sweep_folder.folder import read_state, total_elapsed_s
    from results.sweep_folder.lock import current_driver

    trials, seconds = spec.budget.trials, spec.budget.time
    if current_driver(paths.lock):
        return "running"
    if read_state(paths).ended or (trials is not None and finished >= trials):
        return "done"
    over = seconds is not None and total_elapsed_s(paths) >= seconds
    return "done" if over else "interrupted"
