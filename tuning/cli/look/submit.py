"""`tune submit`, `tune queue` and `tune cancel`: sweeps in the queues of other programs."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from search_spaces.errors import UserError, suggest
from tuning.cli.formatting import echo, make_console
from tuning.cli.options import File, Set, StorageDir, Sweep

if TYPE_CHECKING:
    from results.paths import SweepPaths
    from search_spaces.loading.sweep_file import LoadedSweep


def submit(
    file: File,
    to: Annotated[str, typer.Option(metavar="ENGINE", help="slurm.")],
    options: Annotated[
        list[str],
        typer.Option(
            "--with",
            metavar="OPTION",
            help="What the engine is told besides, e.g. --with partition=low. May be repeated.",
        ),
    ] = [],  # noqa: B006 - typer reads the default, it is never changed
    set_: Set = [],  # noqa: B006 - typer reads the default, it is never changed
    name: Annotated[
        str | None, typer.Option(metavar="N", help="Name of the sweep; default: the file's.")
    ] = None,
    storage: StorageDir = None,
) -> None:
    """Queue the sweep of a file on other machines; it continues by itself after a preemption.

    The file says in `cluster` which machines the job gets. All of them see the sweep's folder. The
    same command continues a sweep that was cancelled.

    Example: tune submit search_spaces/llm.yaml --to slurm --with partition=low --with time=8:00:00
    """
    from search_spaces.loading.sweep_file import load_sweep
    from search_spaces.pipeline.loading import is_pipeline_file
    from tuning.controller.sweep_dir.create import discard_empty_sweep
    from tuning.controller.sweep_dir.folder import sweep_argument
    from tuning.submit.engine import ENGINES, make_engine
    from tuning.submit.jobs import submit_sweep
    from tuning.submit.portable import require_cluster

    if to not in ENGINES:
        raise UserError(f"--to {to}: no such engine{suggest(to, ENGINES)}")
    if is_pipeline_file(file):
        raise UserError(f"{file}: a pipeline cannot be submitted; submit the files of its sweeps")
    engine, loaded = make_engine(to), load_sweep(file, set_)
    require_cluster(loaded)
    paths, begun = _folder(loaded, name, storage)
    try:
        job_id = submit_sweep(loaded, paths, engine, to, options)
    except UserError:
        if not begun:
            discard_empty_sweep(paths)
        raise
    echo(f"{to} job {job_id} {'continues' if begun else 'begins'} sweep {paths.name}")
    echo(f"watch with: tune queue; end with: tune cancel {sweep_argument(paths)}")


def _folder(loaded: LoadedSweep, name: str | None, storage: str | None) -> tuple[SweepPaths, bool]:
    """The folder of a file's sweep, which is made if it is not there; and whether it was."""
    from results.paths import SweepPaths
    from tuning import api
    from tuning.controller.sweep_dir.begun import find_begun
    from tuning.controller.sweep_dir.restore import restore_sweep

    found = find_begun(loaded, name, storage)
    if found is None:
        return api.create(loaded, name=name or loaded.spec.name, storage=storage), False
    return restore_sweep(found, storage) if "://" in found else SweepPaths(Path(found)), True


def queue(storage: StorageDir = None) -> None:
    """List the sweeps that were submitted, with the states of their jobs.

    Example: tune queue
    """
    from rich.table import Table

    from results.records.spec_file import read_spec
    from results.records.trial import read_trials
    from tuning.cli.look.ls import sweep_state
    from tuning.controller.sweep_dir.folder import named_sweeps, resolve_storage
    from tuning.submit.jobs import own_note, submitted

    table, problems = Table(box=None, pad_edge=False, header_style="bold"), list[str]()
    for column in ("id", "engine", "state", "sweep", "sweep's state", "submitted"):
        table.add_column(column, overflow="fold")
    root = resolve_storage(storage)
    for name, paths in submitted(named_sweeps(root)):
        try:
            note = own_note(paths)
        except UserError as e:
            problems.append(e.problems[0])
            continue
        try:
            state = note.asked.state(note.id) or "ended"
        except UserError as e:
            state = "unknown"
            problems.append(e.problems[0])
        finished = sum(record.state.finished for record in read_trials(paths))
        progress = sweep_state(paths, read_spec(paths), finished)
        date = time.strftime("%Y-%m-%d %H:%M", time.localtime(note.submitted))
        table.add_row(note.id, note.engine, state, name, progress, date)
    if table.row_count:
        make_console().print(table)
    elif not problems:
        echo(f"no sweep in {root.root} was submitted; do that with: tune submit FILE --to slurm")
    for problem in dict.fromkeys(problems):
        echo(problem, err=True)


def cancel(sweep: Sweep, storage: StorageDir = None) -> None:
    """End the job of a submitted sweep: trials save checkpoints, tune submit continues them.

    Example: tune cancel llm
    """
    from tuning.controller.sweep_dir.folder import find_sweep, sweep_argument
    from tuning.submit.jobs import own_note

    paths = find_sweep(sweep, storage)
    note = own_note(paths)
    if (state := note.asked.state(note.id)) is None:
        return echo(f"{note.engine} job {note.id} has ended")
    note.asked.cancel(note.id)
    echo(f"{note.engine} job {note.id} was {state}, and ends; checkpoints are kept")
    echo(f"continue with: tune submit FILE or tune resume {sweep_argument(paths)}")
