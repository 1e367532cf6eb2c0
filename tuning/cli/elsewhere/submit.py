"""`tune submit`, `tune queue` and `tune cancel`: sweeps in the queues of other programs."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from search_spaces.errors import UserError, suggest
from tuning.cli.formatting import echo, make_console
from tuning.cli.json_output import print_json
from tuning.cli.options import File, Json, Name, Set, StorageDir, Sweep

if TYPE_CHECKING:
    from results.paths import Storage, SweepPaths
    from search_spaces.loading.sweep_file import LoadedSweep
    from tuning.submit.jobs import JobNote


def submit(
    file: File,
    to: Annotated[str, typer.Option(metavar="ENGINE", help="ray, slurm or k8s (Kubernetes).")],
    options: Annotated[
        list[str],
        typer.Option(
            "--with",
            metavar="OPTION",
            help="An option of the engine, e.g. --with partition=low. May be repeated.",
        ),
    ] = [],  # noqa: B006 - typer reads the default, it is never changed
    address: Annotated[
        str | None,
        typer.Option(
            metavar="PLACE",
            help="Which cluster. Of Ray: http://HOST:8265; default: that of tune up --jobs. Of "
            "Kubernetes: a context of kubectl; default: the current one.",
        ),
    ] = None,
    set_: Set = [],  # noqa: B006 - typer reads the default, it is never changed
    name: Name = None,
    storage: StorageDir = None,
) -> None:
    """Queue a file's sweep in Slurm, Kubernetes or a Ray cluster.

    It continues by itself after a preemption. The file says in `cluster` which machines the job
    gets; a Ray cluster has its own. All of them see the sweep's folder; in Kubernetes it is on
    their volume. The same command continues a sweep that was cancelled.

    Example: tune submit llm.yaml --to slurm --with partition=low --with time=8:00:00
    """
    from results.sweep_folder.folder import sweep_argument
    from tuning.controller.sweep_dir.create import discard_empty_sweep
    from tuning.submit.engine import ENGINES, Job, make_engine
    from tuning.submit.jobs import run_command, submit_job

    if to not in ENGINES:
        raise UserError(f"--to {to}: no such engine{suggest(to, ENGINES)}")
    engine, given = make_engine(to, address), _load(file, set_, name)
    remarks = engine.check(given.sweeps, options)
    paths, begun = given.folder(storage, shared=engine.shares_folder)
    command = run_command(file, given.overrides, paths)
    try:
        job_id = submit_job(Job(given.sweeps, paths, command, options), engine, to)
    except UserError:
        if not begun:
            discard_empty_sweep(paths)
        raise
    began = f"{to} job {job_id} {'continues' if begun else 'begins'} {given.kind} {paths.name}"
    end = f"watch with: tune queue; end with: tune cancel {sweep_argument(paths)}"
    echo("\n".join([began, *remarks, end]))


def _load(file: Path, overrides: Sequence[str], name: str | None) -> _Sweep | _Pipeline:
    from search_spaces.loading.sweep_file import load_sweep
    from search_spaces.pipeline.loading import is_pipeline_file, load_pipeline

    if is_pipeline_file(file):
        pipeline = load_pipeline(file, overrides)
        return _Pipeline(file, overrides, name or pipeline.name, list(pipeline.sweeps.values()))
    named = [] if name is None else [f"name={name}"]  # a job has the name of the file's sweep
    return _Sweep([load_sweep(file, [*overrides, *named])])


@dataclass(frozen=True)
class _Sweep:
    sweeps: Sequence[LoadedSweep]
    kind = "sweep"

    @property
    def overrides(self) -> Sequence[str]:
        return self.sweeps[0].overrides

    def folder(self, storage: str | None, *, shared: bool) -> tuple[SweepPaths, bool]:
        """Its folder, which is made if it is not there; and whether it was.

        Args:
            shared: whether the sweep will run in this folder, not in one of another machine.
        """
        from results.paths import SweepPaths
        from results.sweep_folder.copies.restore import restore_sweep
        from tuning import api
        from tuning.controller.sweep_dir.create import find_existing

        [loaded] = self.sweeps
        found = find_existing(loaded, None, storage)
        if found is None or ("://" in found and not shared):
            return api.create(loaded, name=loaded.spec.name, storage=storage), False
        return restore_sweep(found, storage) if "://" in found else SweepPaths(Path(found)), True


@dataclass(frozen=True)
class _Pipeline:
    file: Path
    overrides: Sequence[str]
    name: str
    sweeps: Sequence[LoadedSweep]
    kind = "pipeline"

    def folder(self, storage: str | None, *, shared: bool) -> tuple[SweepPaths, bool]:
        """The same; files of a job have the names and the content of those of a sweep."""
        from results.paths import SweepPaths
        from results.records.pipeline import PipelinePaths
        from results.sweep_folder.folder import resolve_storage
        from tuning.pipelines.run import create_pipeline

        begun = PipelinePaths(resolve_storage(storage).root / self.name).is_pipeline
        paths = create_pipeline(
            self.file, overrides=self.overrides, name=self.name, storage=storage
        )
        return SweepPaths(paths.root), begun


def queue(storage: StorageDir = None, json_: Json = False) -> None:
    """List the submitted sweeps with the states of their jobs.

    Example: tune queue
    """
    from results.sweep_folder.folder import resolve_storage
    from tuning.cli.table import Table

    root = resolve_storage(storage)
    jobs, problems = _jobs(root)
    if json_:
        return print_json({"storage": root.root, "jobs": jobs, "problems": problems})
    if jobs:
        titles = ("id", "engine", "state", "sweep", "sweep's state", "submitted")
        dates = (time.localtime(job["submitted"]) for job in jobs)
        shown = (time.strftime("%Y-%m-%d %H:%M", date) for date in dates)
        rows = [[*list(job.values())[:-1], date] for job, date in zip(jobs, shown, strict=True)]
        make_console().print(Table.of(titles, rows, flexible=("state", "sweep's state")))
    elif not problems:
        echo(f"no sweep in {root.root} was submitted; do that with: tune submit FILE")
    for problem in problems:
        echo(problem, err=True)


def _jobs(root: Storage) -> tuple[list[dict[str, Any]], list[str]]:
    """The jobs of a storage, and what could not be read or asked, each once."""
    from tuning.submit.jobs import own_note

    jobs, problems = list[dict[str, Any]](), dict[str, None]()
    for name, paths in _submitted(root):
        try:
            note = own_note(paths)
        except UserError as e:
            problems[e.problems[0]] = None
            continue
        progress = _progress(note, paths)
        try:
            asked = note.asked.state(note.id)
            state = asked.words
            if progress == "interrupted" and not asked.over:
                progress = "no driver yet"
        except UserError as e:
            state = "unknown"
            problems[e.problems[0]] = None
        job: dict[str, Any] = {"id": note.id, "engine": note.engine, "state": state, "sweep": name}
        jobs.append({**job, "progress": progress, "submitted": note.submitted})
    return jobs, list(problems)


def _submitted(root: Storage) -> Iterator[tuple[str, SweepPaths]]:
    """Sweeps and pipelines with a job, by name; its files have the names of those of a sweep."""
    from results.paths import SweepPaths
    from results.records.pipeline import pipelines_in
    from results.sweep_folder.folder import named_sweeps

    pipelines = ((found.name, SweepPaths(found.root)) for found in pipelines_in(root))
    yield from (one for one in chain(pipelines, named_sweeps(root)) if one[1].job.exists())


def _progress(note: JobNote, paths: SweepPaths) -> str:
    """The state of a sweep, if its folder is the one here."""
    from results.models.stages import read_stages
    from results.records.pipeline import PipelinePaths
    from results.records.spec_file import read_spec
    from results.records.trial import read_trials
    from results.sweep_folder.lock import sweep_state

    if not note.shares_folder:
        return "in its cluster"
    if (pipeline := PipelinePaths(paths.root)).is_pipeline:
        done = sum(record.done for record in read_stages(pipeline).stages.values())
        return f"{done} of its stages done"
    finished = sum(record.state.finished for record in read_trials(paths))
    return sweep_state(paths, read_spec(paths), finished)


def cancel(sweep: Sweep, storage: StorageDir = None) -> None:
    """End the job of a submitted sweep; tune submit continues it.

    Its trials save checkpoints.

    Example: tune cancel llm
    """
    from results.paths import SweepPaths
    from results.sweep_folder.folder import find_sweep, sweep_argument
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
