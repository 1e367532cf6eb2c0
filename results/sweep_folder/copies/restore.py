"""Restores a sweep folder on a new machine, from its mirror or a backup."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from results.checkpoints.commit import newest_intact
from results.paths import SweepPaths
from results.records.pipeline import PipelinePaths
from results.records.record_log import log_current
from results.records.spec_file import read_spec
from results.records.trial import TrialRecord, read_trials
from results.storage.object_store import ContentMismatchError, ObjectStore, open_object_store
from results.storage.probe import check_storage
from results.sweep_folder.copies.backup import FILES, Backup, BackupFile, labels, others
from results.sweep_folder.copies.checkpoint_mirror import MirrorLocation, TrialMirror
from results.sweep_folder.copies.contents import THREADS
from results.sweep_folder.copies.mirror import RECORDS
from results.sweep_folder.folder import read_state, resolve_storage, sweep_argument, write_state
from search_spaces.errors import DamagedRecordsError, UserError
from search_spaces.spec.env_vars import expand_now

_READER = "0" * 8
"""The token of a process that only reads the mirror."""
_CHECKPOINT = re.compile(r"((?:stages/[^/]+/)?trials/[^/]+/checkpoints/[^/]+)/.+")


@contextmanager
def new_folder(paths: SweepPaths) -> Iterator[SweepPaths]:
    """A hidden folder that becomes a sweep's or pipeline's when the block ends without an error.

    Raises:
        UserError: the folder exists already, or the storage cannot hold a sweep.
    """
    require_free(paths)
    check_storage(paths.storage.root)
    draft = SweepPaths(paths.root.with_name(f".{paths.name}.restored"))
    shutil.rmtree(draft.root, ignore_errors=True)
    draft.root.mkdir(parents=True)
    try:
        yield draft
    except BaseException:
        shutil.rmtree(draft.root, ignore_errors=True)
        raise
    for one in restored_sweeps(draft):
        log_current(one, [one.trial(trial_id).record for trial_id in one.trial_ids()])
    os.rename(draft.root, paths.root)


def require_free(paths: SweepPaths) -> None:
    """Raise `UserError` if a folder exists already."""
    if paths.root.exists():
        raise UserError(
            f"{paths.root} exists; continue it: tune resume {sweep_argument(paths)}; or rename it, "
            "or restore into another storage: --storage DIR"
        )


def restored_sweeps(draft: SweepPaths) -> list[SweepPaths]:
    """The sweep of a folder, or those of its stages."""
    stages = map(SweepPaths, PipelinePaths(draft.root).stages.root.glob("[!.]*"))
    return [one for one in (draft, *stages) if one.is_sweep]


def restore_sweep(address: str, storage: str | None) -> SweepPaths:
    """Create the folder of a mirrored sweep; trials fetch their checkpoints when they need them.

    Args:
        address: of the sweep, such as `s3://bucket/prefix/llm`.
        storage: the folder of sweeps; None: see `resolve_storage`.

    Raises:
        UserError: there is no sweep, the object storage cannot be reached, or the folder exists.
    """
    objects = open_object_store(address)
    paths = resolve_storage(storage).sweep(objects.address.rpartition("/")[2])
    require_free(paths)
    # the mirror's address as its user gave it: the sweep may name another
    plain, mark, options = address.partition("?")
    mirror = plain.rstrip("/").rpartition("/")[0] + mark + options
    location = MirrorLocation(mirror, paths.name, _READER)
    with objects.explained():
        keys = mirrored_records(objects)
        with new_folder(paths) as draft:
            fetch_records(objects, keys, draft.root)
            for record in read_trials(draft):
                if not record.state.finished:
                    _mirror(location, record).merge_reports(draft.trial(record.id))
            with suppress(UserError):  # a resume repairs a damaged one
                here = os.path.realpath(paths.root)  # the sweep goes on there: it is no copy
                write_state(draft, replace(read_state(draft), folder=here))
    return paths


def mirrored_records(objects: ObjectStore) -> dict[str, int]:
    """Sizes in bytes of a mirror's records, by path in the sweep folder.

    Raises:
        UserError: the mirror holds no sweep.
        OSError: the storage failed.
    """
    keys = objects.sizes(RECORDS)
    if "sweep.yaml" not in keys:
        raise UserError(f"{objects.address}: holds no sweep; the address of a sweep is MIRROR/NAME")
    return keys


def fetch_records(objects: ObjectStore, keys: Iterable[str], root: Path) -> None:
    """Fetch records of a mirror into a folder; none whose key points out of it."""

    def fetch(key: str) -> None:
        if _is_inside(root, key):
            objects.fetch(f"{RECORDS}/{key}", root / key)
            written = objects.modified_at(f"{RECORDS}/{key}") or 0.0
            os.utime(root / key, (written, written))  # shows the length of a killed session

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(fetch, keys))


def fetch_backup(objects: ObjectStore, backup: Backup, root: Path) -> list[str]:
    """Fetch every file, and compare its hash.

    Args:
        root: an empty folder.

    Returns:
        The checkpoints that are damaged in the backup and were left out, as paths in the folder.

    Raises:
        DamagedRecordsError: another file is damaged in the backup.
        OSError: the storage failed.
    """

    def fetch(name: str, entry: BackupFile) -> bool:
        """Fetch a file; False if the backup does not have it as its manifest says."""
        if not _is_inside(root, name):
            return False
        try:
            objects.fetch(f"{FILES}/{entry.sha256}", root / name, entry.sha256)
        except (FileNotFoundError, ContentMismatchError):
            return False
        os.utime(root / name, (entry.modified, entry.modified))  # as in `fetch_records`
        return True

    with ThreadPoolExecutor(THREADS) as pool:
        fetched = pool.map(fetch, backup.files, backup.files.values())
        damaged = [name for name, ok in zip(backup.files, fetched, strict=True) if not ok]
    found = {name: _CHECKPOINT.fullmatch(name) for name in damaged}
    if lost := next((name for name, match in found.items() if match is None), None):
        what = f"{lost} of {backup.label} is damaged; {others(labels(objects), backup.label)}"
        raise DamagedRecordsError(f"{objects.address}: {what}")
    left_out = sorted({match[1] for match in found.values() if match})
    for folder in left_out:
        shutil.rmtree(root / folder)
    return left_out


def fetch_checkpoints(paths: SweepPaths, records: list[TrialRecord]) -> dict[str, int | None]:
    """Fetch the newest checkpoint of each trial from the mirror if the folder lacks it.

    Returns:
        Trial id to the step that was fetched; to None if the mirror has no newer one.

    Raises:
        UserError: the sweep has no mirror, or it cannot be reached.
    """
    spec = read_spec(paths)
    if spec.checkpoint.mirror is None:
        raise UserError(f"{paths.name}: has no mirror in object storage (checkpoint.mirror)")
    address = expand_now("checkpoint.mirror", spec.checkpoint.mirror)
    location, fetched = MirrorLocation(address, spec.name, _READER), dict[str, int | None]()
    with location.open().explained():
        for record in records:
            files = paths.trial(record.id)
            local = newest_intact(files)
            step = -1 if local is None else local.step
            fetched[record.id] = _mirror(location, record).fetch(files, step)
    return fetched


def _mirror(location: MirrorLocation, record: TrialRecord) -> TrialMirror:
    return TrialMirror(location, record.id, len(record.attempts) + 1)


def _is_inside(root: Path, key: str) -> bool:
    return (root / key).resolve().is_relative_to(root.resolve())
