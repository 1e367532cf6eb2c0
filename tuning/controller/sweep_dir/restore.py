"""A sweep on a new machine: its folder made again from what object storage has of it."""

from __future__ import annotations

import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from results.checkpoints.commit import newest_intact
from results.checkpoints.trial_mirror import MirrorLocation, TrialMirror
from results.paths import SweepPaths
from results.records.spec_file import read_spec
from results.records.trial import TrialRecord, read_trials
from results.storage.object_store import ObjectStore, explain_storage_error, open_object_store
from search_spaces.errors import UserError
from search_spaces.spec.sweep import SweepSpec
from tuning.controller.sweep_dir.folder import resolve_storage
from tuning.controller.sweep_dir.record_mirror import RECORDS

_AT_ONCE = 8
_READER = "0" * 8


def restore_sweep(address: str, storage: str | None) -> SweepPaths:
    """Make the folder of a mirrored sweep; checkpoints follow when a trial needs them.

    Args:
        address: of the sweep, such as `s3://bucket/prefix/llm`.
        storage: where its folder is to be; default: as every command's.

    Raises:
        UserError: there is no sweep, the storage cannot be reached, or the folder exists.
    """
    objects = open_object_store(address)
    name = objects.address.rpartition("/")[2]
    paths = resolve_storage(storage).sweep(name)
    if paths.root.exists():
        raise UserError(f"{paths.root} exists; go on with it: tune resume {paths.root}")
    try:
        keys = objects.sizes(RECORDS)
        if "sweep.yaml" not in keys:
            raise UserError(f"{objects.address}: holds no sweep; give MIRROR/NAME of one")
        return _fetch_records(objects, list(keys), paths)
    except OSError as e:
        if e.errno is not None:
            raise
        raise explain_storage_error(objects, e) from e


def fetch_checkpoints(paths: SweepPaths, records: list[TrialRecord]) -> dict[str, int | None]:
    """Bring the newest checkpoint of trials back from the mirror, where the folder lacks it.

    Returns:
        By trial, the step that was fetched; None where there is none that is newer.

    Raises:
        UserError: the sweep has no mirror, or it cannot be reached.
    """
    place = _place(paths, read_spec(paths))
    try:
        return {record.id: _fetch(place, paths, record) for record in records}
    except OSError as e:
        if e.errno is not None:
            raise
        raise explain_storage_error(place.open(), e) from e


def _fetch_records(objects: ObjectStore, keys: list[str], paths: SweepPaths) -> SweepPaths:
    draft = SweepPaths(paths.root.with_name(f".{paths.name}.fetched"))
    shutil.rmtree(draft.root, ignore_errors=True)
    draft.root.mkdir(parents=True)

    def fetch(key: str) -> None:
        target = draft.root / key
        objects.fetch(f"{RECORDS}/{key}", target)
        when = objects.modified_at(f"{RECORDS}/{key}") or 0.0
        os.utime(target, (when, when))  # says when the sweep was heard of last

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        list(pool.map(fetch, [k for k in keys if _is_inside(draft.root, k)]))
        place = _place(draft, read_spec(draft))
        waiting = [r for r in read_trials(draft) if not r.state.finished]
        list(pool.map(lambda r: _mirror(place, r).merge_reports(draft.trial(r.id)), waiting))
    os.rename(draft.root, paths.root)
    return paths


def _is_inside(root: Path, key: str) -> bool:
    return (root / key).resolve().is_relative_to(root.resolve())


def _place(paths: SweepPaths, spec: SweepSpec) -> MirrorLocation:
    if spec.checkpoint.mirror is None:
        raise UserError(f"{paths.name}: is in no object storage (checkpoint.mirror)")
    return MirrorLocation(str(spec.checkpoint.mirror), spec.name, _READER)


def _mirror(place: MirrorLocation, record: TrialRecord) -> TrialMirror:
    return TrialMirror(place, record.id, len(record.attempts) + 1)


def _fetch(place: MirrorLocation, paths: SweepPaths, record: TrialRecord) -> int | None:
    here = newest_intact(paths.trial(record.id))
    step = -1 if here is None else here.step
    return _mirror(place, record).fetch(paths.trial(record.id), step)
