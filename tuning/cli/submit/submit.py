"""`tune submit`: hands sweeps to the queues of other programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from search_spaces.errors import UserError, suggest
from tuning.cli.formatting import echo
from tuning.cli.options import File, Set, StorageDir

if TYPE_CHECKING:
    from results.paths import SweepPaths
    from search_spaces.loading.sweep_file import LoadedSweep


def submit(
    file: File,
    to: Annotated[str, typer.Option(metavar="ENGINE", help="ray, slurm or k8s (Kubernetes).")],
    options: Annotated[
        list[str],
        typer.Option(
            "--with",
            metavar="OPTION",
            help="What the engine is told besides, e.g. --with partition=low. May be repeated.",
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
    name: Annotated[
        str | None, typer.Option(metavar="N", help="Name of the sweep; default: the file's.")
    ] = None,
    storage: StorageDir = None,
) -> None:
    """Queue the sweep or pipeline of a file elsewhere; it continues by itself after a preemption.

    The file says in `cluster` which machines the job gets; a Ray cluster has its own. All of them
    see the sweep's folder; in Kubernetes it is on their volume. The same command continues a sweep
    that was cancelled.

    Example: tune submit search_spaces/llm.yaml --to slurm --with partition=low --with time=8:00:00
    """
    from results.sweep_folder.folder import sweep_argument
    from tuning.controller.sweep_dir.create import discard_empty_sweep
    from tuning.submit.engine import ENGINES, Job, make_engine
    from tuning.submit.jobs import run_command, submit_job

    if to not in ENGINES:
        raise UserError(f"--to {to}: no such engine{suggest(to, ENGINES)}")
    engine, given = make_engine(to, address), _given(file, set_, name)
    remarks = engine.check(given.sweeps, options)
    paths, begun = given.folder(storage, shared=engine.shares_folder)
    command = run_command(file, given.overrides, paths)
    try:
        job_id = submit_job(Job(given.sweeps, paths, command, options), engine, to)
    except UserError:
        if not begun:
            discard_empty_sweep(paths)
        raise
    echo(f"{to} job {job_id} {'continues' if begun else 'begins'} {given.kind} {paths.name}")
    for remark in remarks:
        echo(remark)
    echo(f"watch with: tune queue; end with: tune cancel {sweep_argument(paths)}")


def _given(file: Path, overrides: Sequence[str], name: str | None) -> _Sweep | _Pipeline:
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
