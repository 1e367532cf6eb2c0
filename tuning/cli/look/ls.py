"""`tune ls`: the sweeps of a storage, read from their folders."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from search_spaces.errors import DamagedRecordsError, UserError
from tuning.cli.formatting import echo, make_console, number
from tuning.cli.options import StorageDir

if TYPE_CHECKING:
    from results.paths import SweepPaths
    from results.records.integrity import Integrity
    from results.records.reports import Report
    from results.records.trial import TrialRecord
    from search_spaces.spec.sweep import SweepSpec


def ls(storage: StorageDir = None) -> None:
    """List the sweeps of a storage, and of its pipelines: stories/sft.

    Example: tune ls
    """
    from rich.table import Table
    from rich.text import Text

    from results.records.integrity import check_records
    from tuning.controller.sweep_dir.folder import named_sweeps, resolve_storage

    root = resolve_storage(storage)
    if storage is not None and not root.root.is_dir():
        raise UserError(f"storage {root.root}: no such folder")
    table, problems = Table(box=None, pad_edge=False, header_style="bold"), []
    for name in ("sweep", "state", "trials", "best", "metric", "trainable", "started", "hours"):
        table.add_column(name, overflow="fold")
    for name, paths in named_sweeps(root):
        try:
            with no_garbage_collection():
                found = check_records(paths, keep=True)
                table.add_row(name, *_sweep_row(found))
            problems += found.words if found.problems else []
        except UserError as e:
            table.add_row(name, Text("damaged", style="red"))
            problems.append(f"{name} is damaged: {e.problems[0]}")
    if not table.row_count:
        echo(f"no sweeps in {root.root}; start one with: tune run FILE")
        return
    make_console().print(table)
    for problem in problems:
        echo(problem, err=True)
    if problems:
        raise typer.Exit(DamagedRecordsError.exit_code)


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """For a block that reads many records: looking for cycles among them takes a third of it."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _sweep_row(found: Integrity) -> list[str]:
    from results.analysis.leaderboard import rank_trials, summarize
    from results.records.spec_file import read_spec

    paths, spec = found.readable, read_spec(found.paths)
    trials = list(found.last_reports([o.metric for o in spec.objectives]))
    metric, mode = spec.metric, spec.mode  # each computed at every use
    lines = [summarize(*trial, metric, mode) for trial in trials]
    board = rank_trials(lines, spec.mode)
    finished = sum(e.record.state.finished for e in board)
    tried = sum(not e.record.state.active for e in board)
    total = spec.budget.trials
    best = next((e for e in board if e.record.eligible), None)
    if len(spec.objectives) > 1:
        from tuning.cli.summary import winner

        best = winner(paths, spec)
    values = [best.value if best else None]
    values += [best.values.get(o.metric) if best else None for o in spec.objectives[1:]]
    state = sweep_state(paths, spec, finished)
    return [
        state,
        f"{tried}/{total}" if total else str(tried),
        ", ".join(map(number, values)),
        ", ".join(f"{o.mode} {o.metric}" for o in spec.objectives),
        f"command: {spec.command[0]}" if spec.command else spec.trainable,
        _started(paths),
        _hours(trials, running=state == "running"),
    ]


def _started(paths: SweepPaths) -> str:
    """The date of the first session."""
    from tuning.controller.sweep_dir.folder import read_state

    began = read_state(paths).started
    return time.strftime("%Y-%m-%d", time.localtime(began[0])) if began else "-"


def _hours(trials: Iterable[tuple[TrialRecord, Sequence[Report]]], *, running: bool) -> str:
    """The CPU-hours and GPU-hours of all attempts, in short.

    Attempts that a killed driver left open end at the trial's last report.
    """
    from tuning.controller.attempts import end_attempt, last_activity
    from tuning.controller.resources.budget import total_cost

    records = (
        record
        if running or not record.state.active
        else end_attempt(record, ended=last_activity(record, reports))
        for record, reports in trials
    )
    cost = total_cost(records)
    return f"{cost.cpu_hours:.2f} CPU" + f", {cost.gpu_hours:.2f} GPU" * bool(cost.gpu_hours)


def sweep_state(paths: SweepPaths, spec: SweepSpec, finished: int) -> str:
    """`running`, `done` or `interrupted`; `finished` is a number of trials."""
    from tuning.controller.sweep_dir.lock import current_driver

    if current_driver(paths.lock):
        return "running"
    return "done" if _has_ended(paths, spec, finished) else "interrupted"


def _has_ended(paths: SweepPaths, spec: SweepSpec, finished: int) -> bool:
    """Whether a session recorded the end, or was killed after a limit was reached."""
    from tuning.controller.sweep_dir.folder import read_state, total_elapsed_s

    trials, seconds = spec.budget.trials, spec.budget.time
    if read_state(paths).ended or (trials is not None and finished >= trials):
        return True
    return seconds is not None and total_elapsed_s(paths) >= seconds
