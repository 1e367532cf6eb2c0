"""`tune delete` and `tune mv`: the folders of sweeps and pipelines."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from search_spaces.errors import UserError
from tuning.cli.formatting import echo, size
from tuning.cli.options import StorageDir, Sweep, Trust, ask_for_trust

if TYPE_CHECKING:
    from results.paths import SweepPaths
    from results.records.pipeline import PipelinePaths


def delete(
    sweep: Sweep,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    mlflow: Annotated[
        bool, typer.Option("--mlflow", help="Also delete its runs in MLflow.")
    ] = False,
    trust: Trust = False,
    storage: StorageDir = None,
) -> None:
    """Delete a sweep or pipeline: records, checkpoints, results.

    It asks first. A running one is refused. Copies stay: backups, and the mirror of
    checkpoint.mirror.

    Example: tune delete llm --yes
    """
    from results.sweep_folder.lock import refuse_if_driven
    from results.sweep_folder.relocation import delete_folder

    found = _whole(sweep, storage)
    refuse_if_driven(found.lock)
    if not yes:
        if not sys.stdin.isatty():
            raise UserError(f"{found.root}: add --yes to delete it without a question")
        typer.confirm(f"Delete {_described(found)}?", abort=True, err=True)
    if mlflow:
        echo(f"deleted {_delete_runs(found, trust)} runs in MLflow")
    delete_folder(found.root, _places(found))
    echo(f"deleted {found.root}")


def mv(
    sweep: Sweep,
    new: Annotated[str, typer.Argument(metavar="NEW", help="The new name.")],
    storage: StorageDir = None,
) -> None:
    """Rename a sweep or pipeline; its runs in MLflow stay its own.

    A running one is refused. To another storage a sweep moves with its folder.

    Example: tune mv llm llm-small
    """
    from results.sweep_folder.relocation import rename_folder
    from tuning.controller.sweep_dir.create import validate_name

    found = _whole(sweep, storage)
    target = found.root.with_name(validate_name(new, "NEW"))
    links = rename_folder(found.root, target, _places(found))
    echo(f"{found.name} is now {new}: {target}")
    for link in links:
        echo(f"{link} stays, as a link: stages that ran there name files by it")


def _places(found: SweepPaths | PipelinePaths) -> tuple[str, ...]:
    """Paths by which its own files name it: those of a pipeline's stages do."""
    from results.models.stages import read_stages
    from results.paths import SweepPaths

    return () if isinstance(found, SweepPaths) else read_stages(found).places


def _whole(sweep: str, storage: str | None) -> SweepPaths | PipelinePaths:
    """A sweep that is no stage, or a pipeline, with records that show that it is one.

    Raises:
        UserError: there is none, its records are unreadable, or a job of it is queued.
    """
    from results.models.stages import read_stages
    from results.paths import SweepPaths
    from results.records.pipeline import pipeline_of
    from results.sweep_folder.folder import find_sweep, read_state
    from tuning.pipelines.folder import find_pipeline

    if (pipeline := find_pipeline(sweep, storage)) is not None:
        if not read_stages(pipeline).identity:
            raise UserError(f"{pipeline.records}: does not say that this is a pipeline's folder")
        _refuse_link(pipeline.root)
        _refuse_if_queued(SweepPaths(pipeline.root))
        return pipeline
    paths = find_sweep(sweep, storage)
    if outer := pipeline_of(paths.root):
        raise UserError(f"{sweep}: a stage of pipeline {outer.name}; name the whole: {outer.name}")
    read_state(paths)
    _refuse_link(paths.root)
    _refuse_if_queued(paths)
    return paths


def _refuse_link(root: Path) -> None:
    if root.is_symlink():
        raise UserError(f"{root}: a link to {root.resolve()}; name that folder")


def _refuse_if_queued(paths: SweepPaths) -> None:
    """Refuse a sweep or pipeline whose job another program still has."""
    from results.sweep_folder.folder import sweep_argument
    from tuning.submit.jobs import own_note

    if not paths.job.exists():
        return
    note = own_note(paths)
    state = note.asked.state(note.id)
    if not state.over:
        job = f"{note.engine} job {note.id} is {state.words}"
        raise UserError(f"{paths.root}: {job}; first: tune cancel {sweep_argument(paths)}")


def _described(found: SweepPaths | PipelinePaths) -> str:
    total = sum(file.lstat().st_size for file in found.root.rglob("*") if not file.is_dir())
    trials = sum(1 for _ in found.root.glob("trials/*")) + sum(
        1 for _ in found.root.glob("stages/*/trials/*")
    )
    return f"{found.root} with {trials} trials, {size(total)}"


def _delete_runs(found: SweepPaths | PipelinePaths, trust: bool) -> int:
    """Delete the runs of a sweep, or of a pipeline and its stages; returns how many."""
    from results.models.stages import read_stages
    from results.paths import SweepPaths
    from results.records.spec_file import read_spec
    from results.sweep_folder.folder import read_state
    from results.sweep_folder.trust import require_trust
    from results.tracking.mlflow.run_store import delete_runs
    from tuning.controller.tracking.observer import tracking_uri

    sweeps = [found] if isinstance(found, SweepPaths) else list(found.stages.sweeps())
    wanted: dict[str, set[str]] = {}
    for paths in sweeps:
        require_trust(paths, trust or ask_for_trust)
        if (spec := read_spec(paths)).tracking.name != "none":
            keys = wanted.setdefault(tracking_uri(spec, paths), set())
            keys.add(read_state(paths).key)
            if not isinstance(found, SweepPaths):
                keys.add(read_stages(found).identity)
    return sum(delete_runs(uri, keys) for uri, keys in wanted.items())
