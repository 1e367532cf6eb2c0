"""Backs up a sweep with its runs in MLflow, and restores both."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from filelock import FileLock

from results.models.stages import read_stages
from results.paths import SweepPaths
from results.records.pipeline import PipelinePaths
from results.records.spec_file import read_spec
from results.storage.sharing import is_shared
from results.sweep_folder.copies.backup import Backup, SavedRun, open_target, read_backup
from results.sweep_folder.copies.backup_writer import BackupUploader, prune_backups, take_backup
from results.sweep_folder.copies.mirror import RECORDS
from results.sweep_folder.copies.restore import fetch_backup, new_folder, restored_sweeps
from results.sweep_folder.folder import read_state, resolve_storage
from results.tracking.delivery import Delivered
from results.tracking.mlflow.saved_runs import restore_runs, save_runs
from search_spaces.errors import UserError
from tuning.controller.tracking.observer import deliver, tracking_uri
from tuning.controller.trial_jobs import checkpoints_to_keep

_DELIVERY_S = 600.0


@dataclass(frozen=True)
class TakenBackup:
    """A backup that was taken.

    Attributes:
        address: of the sweep's backups, without options.
        deleted: number of old backups that were deleted.
        problem: why the tracker's runs are not in it; empty if they are.
    """

    backup: Backup
    address: str
    sent: BackupUploader
    deleted: int
    problem: str


def back_up(
    paths: SweepPaths | PipelinePaths, target: str, *, newest: int, best: int, keep: int
) -> TakenBackup:
    """Take a backup, and delete old ones. The sweep or pipeline may run.

    Args:
        paths: of a sweep that may be trusted: its tracker is asked. Or of a pipeline, with all its
            stages; what people noted on its runs is not saved.
        target: a folder or an address in object storage.
        newest, best: checkpoints of each trial to save.
        keep: number of backups to keep, at least 1.

    Raises:
        UserError: the target cannot be reached, is in the folder, or holds another sweep.
    """
    runs, problem = list[SavedRun](), ""
    if isinstance(paths, SweepPaths):
        key, sweeps = read_state(paths).key, [paths]
        runs, problem = _runs(paths, key)
    else:
        key = read_stages(paths).identity or paths.name
        sweeps = list(paths.stages.sweeps())
    saved = {
        one: replace(checkpoints_to_keep(read_spec(one)), newest=newest, best=best)
        for one in sweeps
    }
    objects = open_target(target).within(paths.root.name)
    is_local, inside = objects.filesystem.type_name == "local", f"{os.path.realpath(paths.root)}/"
    if is_local and os.path.realpath(objects.root).startswith(inside):
        raise UserError(f"{objects.root}: is in the folder that is saved; name another place")
    guard = paths.root / ".backup.guard"
    if not os.access(paths.root, os.W_OK):  # as of a snapshot: others write there, if any
        guard = Path(tempfile.gettempdir(), f"tune-backup-{os.getuid()}-{key}.guard")
    mode = 0o660 if is_shared(paths.root) else 0o600  # another person may take the next one
    with FileLock(guard, mode=mode), objects.explained():
        backup, sent = take_backup(paths.root, key, objects, saved, runs)
        return TakenBackup(backup, objects.address, sent, prune_backups(objects, keep), problem)


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
    with objects.explained():
        if objects.read(f"{RECORDS}/sweep.yaml") is not None:
            raise UserError(f"{objects.address}: is a mirror, no backup; tune resume {source}")
        backup = read_backup(objects, at)
        paths = resolve_storage(storage).sweep(backup.name)
        with new_folder(paths) as draft:
            left_out = fetch_backup(objects, backup, draft.root)
            for one in restored_sweeps(draft):
                delivered = Delivered(one)
                delivered.bind("")  # the tracker may be older, too: it is asked what it has
                delivered.save()
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
