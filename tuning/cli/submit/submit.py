"""`tune submit`: hands sweeps to the queues of other programs."""

from __future__ import annotations

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
    """Queue the sweep of a file on other machines; it continues by itself after a preemption.

    The file says in `cluster` which machines the job gets; a Ray cluster has its own. All of them
    see the sweep's folder; in Kubernetes it is on their volume. The same command continues a sweep
    that was cancelled.

    Example: tune submit search_spaces/llm.yaml --to slurm --with partition=low --with time=8:00:00
    """
    from search_spaces.loading.sweep_file import load_sweep
    from search_spaces.pipeline.loading import is_pipeline_file
    from tuning.controller.sweep_dir.create import discard_empty_sweep
    from tuning.controller.sweep_dir.folder import sweep_argument
    from tuning.submit.engine import ENGINES, make_engine
    from tuning.submit.jobs import submit_sweep

    if to not in ENGINES:
        raise UserError(f"--to {to}: no such engine{suggest(to, ENGINES)}")
    if is_pipeline_file(file):
        raise UserError(f"{file}: a pipeline cannot be submitted; submit the files of its sweeps")
    named = [] if name is None else [f"name={name}"]  # a job has the name of the file's sweep
    engine, loaded = make_engine(to, address), load_sweep(file, [*set_, *named])
    remarks = engine.check(loaded, options)
    paths, begun = _folder(loaded, storage, shared=engine.shares_folder)
    try:
        job_id = submit_sweep(loaded, paths, engine, to, options)
    except UserError:
        if not begun:
            discard_empty_sweep(paths)
        raise
    echo(f"{to} job {job_id} {'continues' if begun else 'begins'} sweep {paths.name}")
    for remark in remarks:
        echo(remark)
    echo(f"watch with: tune queue; end with: tune cancel {sweep_argument(paths)}")


def _folder(loaded: LoadedSweep, storage: str | None, *, shared: bool) -> tuple[SweepPaths, bool]:
    """The folder of a file's sweep, which is made if it is not there; and whether it was.

    Args:
        shared: whether the sweep will run in this folder, not in one of another machine.
    """
    from results.paths import SweepPaths
    from tuning import api
    from tuning.controller.sweep_dir.begun import find_begun
    from tuning.controller.sweep_dir.restore import restore_sweep

    found = find_begun(loaded, None, storage)
    if found is None or ("://" in found and not shared):
        return api.create(loaded, name=loaded.spec.name, storage=storage), False
    return restore_sweep(found, storage) if "://" in found else SweepPaths(Path(found)), True
