"""Backs up a sweep with its runs in MLflow, and restores both."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from filelock import FileLock

from results.backup.base import Backup, SavedRun, open_target, read_backup
from results.backup.fetch import fetch_backup
from results.backup.take import Sent, prune_backups, take_backup
from results.checkpoints.retention import Retention
from results.models.stages import read_stages
from results.paths import SweepPaths
from results.records.pipeline import PipelinePaths
from results.records.record_log import log_current
from results.records.spec_file import read_spec
from results.storage.object_store import ObjectStore, explain_storage_error
from results.storage.probe import check_storage
from results.tracking.delivered import Delivered
from results.tracking.mlflow.saved_runs import restore_runs, save_runs
from search_spaces.errors import UserError
from tuning.controller.sweep_dir.folder import read_state, resolve_storage
from tuning.controller.sweep_dir.record_mirror import RECORDS
from tuning.controller.tracking.observer import deliver, tracking_uri
from tuning.controller.trial_jobs import checkpoints_to_keep

_DELIVERY_S = 600.0


@dataclass(frozen=True)
class Taken:
    """A backup that was taken.

    Attributes:
        address: of the sweep's backups, without options.
        deleted: number of old backups that were deleted.
        problem: why the tracker's runs are not in it; empty if they are.
    """

    backup: Backup
    address: str
    sent: Sent
    deleted: int
    problem: str


def back_up(paths: SweepPaths, target: str, *, newest: int, best: int, keep: int) -> Taken:
    """Take a backup of a sweep, and delete old ones. It may run.

    Args:
        paths: of a sweep that may be trusted: its tracker is asked.
        target: a folder or an address in object storage.
        newest, best: checkpoints of each trial to save.
        keep: number of backups to keep, at least 1.

    Raises:
        UserError: the target cannot be reached, is in the sweep's folder, or holds another sweep.
    """
    key = read_state(paths).key
    runs, problem = _runs(paths, key)
    retention = _retention(paths, newest, best)
    taken = _take(paths.root, key, target, {paths: retention}, runs, keep)
    return replace(taken, problem=problem)


def back_up_pipeline(
    paths: PipelinePaths, target: str, *, newest: int, best: int, keep: int
) -> Taken:
    """Take a backup of a pipeline with all its stages; for the rest see `back_up`.

    What people noted on its runs is not in it.
    """
    found = [SweepPaths(folder) for folder in sorted(paths.stages.root.glob("[!.]*"))]
    sweeps = {one: _retention(one, newest, best) for one in found if one.is_sweep}
    key = read_stages(paths).identity or paths.name
    return _take(paths.root, key, target, sweeps, [], keep)


def _retention(paths: SweepPaths, newest: int, best: int) -> Retention:
    return replace(checkpoints_to_keep(read_spec(paths)), newest=newest, best=best)


def _take(
    root: Path,
    key: str,
    target: str,
    sweeps: Mapping[SweepPaths, Retention],
    runs: Sequence[SavedRun],
    keep: int,
) -> Taken:
    objects = open_target(target).within(root.name)
    if objects.filesystem.type_name == "local":
        _refuse_within(root, objects.root)
    with FileLock(root / ".backup.guard"), _explained(objects):
        backup, sent = take_backup(root, key, objects, sweeps, runs)
        deleted = prune_backups(objects, keep)
    return Taken(backup, objects.address, sent, deleted, "")


def restore_backup(
    source: str, storage: str | None, at: str | None
) -> tuple[SweepPaths, Backup, list[str]]:
    """Create the folder of a sweep from a backup.

    Args:
        source: the folder or address of its backups: TARGET/NAME.
        storage: the folder of sweeps; None: see `resolve_storage`.
        at: which backup; None: the newest.

    Returns:
        The folder, the backup, and the checkpoints that are damaged there and were left out.

    Raises:
        UserError: there is no backup, it is damaged, it cannot be reached, or the folder exists.
    """
    objects = open_target(source)
    with _explained(objects):
        if objects.read(f"{RECORDS}/sweep.yaml") is not None:
            raise UserError(f"{objects.address}: is a mirror, no backup; tune resume {source}")
        backup = read_backup(objects, at)
        paths = resolve_storage(storage).sweep(backup.name)
        if paths.root.exists():
            raise UserError(
                f"{paths.root} exists; continue it: tune resume {paths.root}; or rename it, or "
                "restore into another storage: --storage DIR"
            )
        check_storage(paths.storage.root)
        draft = SweepPaths(paths.root.with_name(f".{paths.name}.restored"))
        shutil.rmtree(draft.root, ignore_errors=True)
        draft.root.mkdir(parents=True)
        left_out = fetch_backup(objects, backup, draft.root)
    for one in [draft, *map(SweepPaths, PipelinePaths(draft.root).stages.root.glob("[!.]*"))]:
        if one.is_sweep:
            log_current(one, [one.trial(trial_id).record for trial_id in one.trial_ids()])
            delivered = Delivered(one)
            delivered.bind("")  # the tracker may be older, too: it is asked what it has
            delivered.save()
    os.rename(draft.root, paths.root)
    return paths, backup, left_out


def restore_tracking(paths: SweepPaths, backup: Backup) -> str | None:
    """Deliver a restored sweep to its tracker, and restore what people had added to its runs.

    Args:
        paths: of a sweep that may be trusted: its tracker is contacted.

    Returns:
        One line on what is missing; None if nothing is, or the sweep has no tracker.
    """
    spec = read_spec(paths)
    if spec.tracking.name == "none":
        return None
    if undelivered := deliver(spec, paths, _DELIVERY_S):
        return undelivered
    try:
        restore_runs(tracking_uri(spec, paths), read_state(paths).key, backup.runs)
    except UserError as e:
        return str(e)
    return None


def _runs(paths: SweepPaths, key: str) -> tuple[list[SavedRun], str]:
    spec = read_spec(paths)
    if spec.tracking.name == "none":
        return [], ""
    try:
        return save_runs(tracking_uri(spec, paths), key), ""
    except UserError as e:
        return [], str(e)


def _refuse_within(root: Path, target: str) -> None:
    if os.path.realpath(target).startswith(f"{os.path.realpath(root)}/"):
        raise UserError(f"{target}: is in the folder that is saved; name another place")


@contextmanager
def _explained(objects: ObjectStore) -> Iterator[None]:
    """Explain errors of object storage, which have no number, in one line."""
    try:
        yield
    except OSError as e:
        if e.errno is not None:
            raise
        raise explain_storage_error(objects, e) from e
