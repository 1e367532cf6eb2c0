"""The frozen `sweep.yaml` of a sweep, and the copy from which a damaged one is read, and mended."""

from __future__ import annotations

from results.paths import SweepPaths
from search_spaces.checksum import yaml_is_intact
from search_spaces.errors import UserError
from search_spaces.loading.sweep_file import load_sweep
from search_spaces.spec.sweep import SweepSpec


def read_spec(paths: SweepPaths) -> SweepSpec:
    """The sweep's frozen spec; where the file is damaged, or gone, from its copy.

    Raises:
        UserError: there is no whole one; each line begins with the sweep's folder.
    """
    try:
        if is_damaged(paths):
            return load_sweep(paths.spec_copy).spec
        return load_sweep(paths.spec).spec
    except UserError as e:
        raise UserError(*(f"{paths.root}/{line}" for line in e.problems)) from e


def is_damaged(paths: SweepPaths) -> bool:
    """Whether `sweep.yaml` is gone, cut off, or not what was written, and its copy is whole.

    Who edits it deletes its checksum: what then is no sweep is a mistake to be told, not damage.
    """
    try:
        data = paths.spec.read_bytes()
    except OSError:
        return _has_copy(paths)
    if yaml_is_intact(data) and _is_text(data) and not _is_cut_off(paths, data):
        return False
    return _has_copy(paths)


def _is_cut_off(paths: SweepPaths, data: bytes) -> bool:
    try:
        copy = paths.spec_copy.read_bytes()
    except OSError:
        return False
    return len(data) < len(copy) and copy.startswith(data)


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _has_copy(paths: SweepPaths) -> bool:
    try:
        load_sweep(paths.spec_copy)
    except UserError:
        return False
    return True
