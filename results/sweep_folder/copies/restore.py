"""Restores a sweep folder on a new machine from its mirror in object storage."""

from __future__ import annotations

import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from results.checkpoints.commit import newest_intact
from results.paths import SweepPaths
from results.records.record_log import log_current
from results.records.spec_file import read_spec
from results.records.trial import TrialRecord, read_trials
from results.storage.object_store import ObjectStore, explain_storage_error, open_object_store
from results.sweep_folder.copies.checkpoint_mirror import MirrorLocation, TrialMirror
from results.sweep_folder.copies.mirror import RECORDS
from results.sweep_folder.folder import read_state, resolve_storage, write_state
from search_spaces.errors import UserError
from search_spaces.spec.env_vars import expand_now
from search_spaces.spec.sweep import SweepSpec

_THREADS = 8
_READER = "0" * 8
"""The token of a process that only reads the mirror."""


def restore_sweep(address: str, storage: str | None) -> SweepPaths:
    """Create the folder of a mirrored sweep; trials fetch their checkpoints when they need them.

    Args:
        address: of the sweep, such as `s3://bucket/prefix/llm`.
        storage: the folder of sweeps; None: see `resolve_storage`.

    Raises:
        UserError: there is no sweep, the object storage cannot be reached, or the folder exists.
    """
    objects = open_object_store(address)
    name = objects.address.rpartition("/")[2]
    paths = resolve_storage(storage).sweep(name)
    if paths.root.exists():
        raise UserError(f"{paths.root} exists; continue it: tune resume {paths.root}")
    try:
        keys = objects.sizes(RECORDS)
        if "sweep.yaml" not in keys:
            raise UserError(
                f"{objects.address}: holds no sweep; the address of a sweep is MIRROR/NAME"
            )
        location = MirrorLocation(_parent(address), name, _READER)
        return _fetch_records(objects, list(keys), paths, location)
    except OSError as e:
        if e.errno is not None:
            raise
        raise explain_storage_error(objects, e) from e


def fetch_checkpoints(paths: SweepPaths, records: list[TrialRecord]) -> dict[str, int | None]:
    """Fetch the newest checkpoint of each trial from the mirror if the folder lacks it.

    Returns:
        Trial id to the step that was fetched; to None if the mirror has no newer one.

    Raises:
        UserError: the sweep has no mirror, or it cannot be reached.
    """
    location = _mirror_location(paths, read_spec(paths))
    try:
        return {record.id: _fetch_checkpoint(location, paths, record) for record in records}
    except OSError as e:
        if e.errno is not None:
            raise
        raise explain_storage_error(location.open(), e) from e


def _parent(address: str) -> str:
    """The address of all mirrored sweeps, as its user gave it: the sweep may name another."""
    plain, mark, options = address.partition("?")
    return plain.rstrip("/").rpartition("/")[0] + mark + options


def _fetch_records(
    objects: ObjectStore, keys: list[str], paths: SweepPaths, location: MirrorLocation
) -> SweepPaths:
    draft = SweepPaths(paths.root.with_name(f".{paths.name}.fetched"))
    shutil.rmtree(draft.root, ignore_errors=True)
    draft.root.mkdir(parents=True)

    with ThreadPoolExecutor(_THREADS) as pool:
        list(pool.map(lambda key: fetch_record(objects, key, draft.root), keys))
        unfinished = [r for r in read_trials(draft) if not r.state.finished]
        list(pool.map(lambda r: _mirror(location, r).merge_reports(draft.trial(r.id)), unfinished))
    log_current(draft, [draft.trial(trial_id).record for trial_id in draft.trial_ids()])
    with suppress(UserError):  # a resume repairs a damaged one
        here = os.path.realpath(paths.root)  # it goes on there: the mirror has one sweep, no copy
        write_state(draft, replace(read_state(draft), folder=here))
    os.rename(draft.root, paths.root)
    return paths


def fetch_record(objects: ObjectStore, key: str, root: Path) -> None:
    """Fetch one record of a mirror into a folder; none whose key points out of it."""
    if not _is_inside(root, key):
        return
    target = root / key
    objects.fetch(f"{RECORDS}/{key}", target)
    written = objects.modified_at(f"{RECORDS}/{key}") or 0.0
    os.utime(target, (written, written))  # shows the length of a killed session


def _is_inside(root: Path, key: str) -> bool:
    return (root / key).resolve().is_relative_to(root.resolve())


def _mirror_location(paths: SweepPaths, spec: SweepSpec) -> MirrorLocation:
    if spec.checkpoint.mirror is None:
        raise UserError(f"{paths.name}: has no mirror in object storage (checkpoint.mirror)")
    address = expand_now("checkpoint.mirror", spec.checkpoint.mirror)
    return MirrorLocation(address, spec.name, _READER)


def _mirror(location: MirrorLocation, record: TrialRecord) -> TrialMirror:
    return TrialMirror(location, record.id, len(record.attempts) + 1)


def _fetch_checkpoint(
    location: MirrorLocation, paths: SweepPaths, record: TrialRecord
) -> int | None:
    local = newest_intact(paths.trial(record.id))
    step = -1 if local is None else local.step
    return _mirror(location, record).fetch(paths.trial(record.id), step)
