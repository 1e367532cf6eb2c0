"""`tune queue` and `tune cancel`: sweeps in the queues of other programs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING

from search_spaces.errors import UserError
from tuning.cli.formatting import echo, make_console
from tuning.cli.options import StorageDir, Sweep

if TYPE_CHECKING:
    from results.paths import Storage, SweepPaths
    from tuning.submit.jobs import Note


def queue(storage: StorageDir = None) -> None:
    """List the sweeps that were submitted, with the states of their jobs.

    Example: tune queue
    """
    from rich.table import Table

    from tuning.controller.sweep_dir.folder import resolve_storage
    from tuning.submit.jobs import own_note

    table, problems = Table(box=None, pad_edge=False, header_style="bold"), list[str]()
    for column in ("id", "engine", "state", "sweep", "sweep's state", "submitted"):
        table.add_column(column, overflow="fold")
    root = resolve_storage(storage)
    for name, paths in _submitted(root):
        try:
            note = own_note(paths)
        except UserError as e:
            problems.append(e.problems[0])
            continue
        try:
            state = note.asked.state(note.id).words
        except UserError as e:
            state = "unknown"
            problems.append(e.problems[0])
        date = time.strftime("%Y-%m-%d %H:%M", time.localtime(note.submitted))
        table.add_row(note.id, note.engine, state, name, _progress(note, paths), date)
    if table.row_count:
        make_console().print(table)
    elif not problems:
        echo(f"no sweep in {root.root} was submitted; do that with: tune submit FILE")
    for problem in dict.fromkeys(problems):
        echo(problem, err=True)


def _submitted(root: Storage) -> Iterator[tuple[str, SweepPaths]]:
    """Sweeps and pipelines with a job, by name; its files have the names of those of a sweep."""
    from results.paths import SweepPaths
    from results.records.pipeline import pipelines_in
    from tuning.controller.sweep_dir.folder import named_sweeps

    pipelines = ((found.name, SweepPaths(found.root)) for found in pipelines_in(root))
    yield from (one for one in chain(pipelines, named_sweeps(root)) if one[1].job.exists())


def _progress(note: Note, paths: SweepPaths) -> str:
    """The state of a sweep, if its folder is the one here."""
    from results.models.stages import read_stages
    from results.records.pipeline import PipelinePaths
    from results.records.spec_file import read_spec
    from results.records.trial import read_trials
    from tuning.cli.look.ls import sweep_state

    if not note.shares_folder:
        return "in its cluster"
    if (pipeline := PipelinePaths(paths.root)).is_pipeline:
        done = sum(record.done for record in read_stages(pipeline).stages.values())
        return f"{done} of its stages done"
    finished = sum(record.state.finished for record in read_trials(paths))
    return sweep_state(paths, read_spec(paths), finished)


def cancel(sweep: Sweep, storage: StorageDir = None) -> None:
    """End the job of a submitted sweep: trials save checkpoints, tune submit continues them.

    Example: tune cancel llm
    """
    from results.paths import SweepPaths
    from tuning.controller.sweep_dir.folder import find_sweep, sweep_argument
    from tuning.pipelines.folder import find_pipeline
    from tuning.submit.jobs import own_note

    pipeline = find_pipeline(sweep, storage)
    paths = find_sweep(sweep, storage) if pipeline is None else SweepPaths(pipeline.root)
    note = own_note(paths)
    state = (engine := note.asked).state(note.id)
    if state.over:
        return echo(f"{note.engine} job {note.id} has {state.words}")
    echo(f"{note.engine} job {note.id} was {state.words}, and {engine.cancel(note.id)}")
    here = f" or tune resume {sweep_argument(paths)}" if engine.shares_folder else ""
    echo(f"continue with: tune submit FILE{here}")
