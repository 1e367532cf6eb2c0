"""Finds the sweep that a file has begun already, for commands that are given again and again."""

from __future__ import annotations

from pathlib import Path

from results.paths import Storage, SweepPaths
from results.records.spec_file import read_spec
from results.storage.object_store import explain_storage_error, open_object_store
from search_spaces.loading.sweep_file import LoadedSweep
from search_spaces.spec.env_vars import expand_now
from search_spaces.spec.sweep import SweepSpec
from tuning.controller.sweep_dir.create import frozen_spec
from tuning.controller.sweep_dir.record_mirror import RECORDS
from tuning.search.auto import with_scheduler

_OWN_KEYS = ("name", "named", "user_code")
"""A folder has its own name, and its own copies of code."""


def find_begun(loaded: LoadedSweep, name: str | None, storage: str | None) -> str | None:
    """Where `tune resume` finds the sweep of a file.

    Args:
        name, storage: as for `create_sweep`; a sweep with a number behind its name is another one.

    Returns:
        Its folder; its address in object storage, if only that is left; None: it has not begun.

    Raises:
        UserError: the object storage cannot be reached.
    """
    name, mirror = name or loaded.spec.name, loaded.spec.checkpoint.mirror
    root = Path(storage or loaded.spec.storage).expanduser().resolve()
    if (paths := Storage(root).sweep(name)).is_sweep:
        return str(paths.root)
    if mirror is None:
        return None
    plain, mark, options = expand_now("checkpoint.mirror", mirror).partition("?")
    address = f"{plain.rstrip('/')}/{name}{mark}{options}"
    objects = open_object_store(address)
    try:
        return address if "sweep.yaml" in objects.sizes(RECORDS) else None
    except OSError as e:
        if e.errno is not None:
            raise
        raise explain_storage_error(objects, e) from e


def changed_keys(folder: str, loaded: LoadedSweep) -> list[str]:
    """Top-level keys in which a file differs from the sweep that it has begun."""
    theirs, ours = read_spec(SweepPaths(Path(folder))), with_scheduler(frozen_spec(loaded))
    keys = [key for key in SweepSpec.model_fields if key not in _OWN_KEYS]
    return [key for key in keys if getattr(theirs, key) != getattr(ours, key)]
