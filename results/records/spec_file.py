"""Read `sweep.yaml` of a sweep folder, or its copy in `history/` when the file is damaged."""

from __future__ import annotations

from results.paths import SweepPaths
from search_spaces.checksum import yaml_is_intact
from search_spaces.errors import UserError
from search_spaces.loading.sweep_file import load_sweep
from search_spaces.spec.sweep import SweepSpec


def read_spec(paths: SweepPaths) -> SweepSpec:
    """The spec of a sweep, from the copy if `sweep.yaml` is damaged or missing.

    Raises:
        UserError: neither file is readable; each line begins with the sweep's folder.
    """
    try:
        if is_damaged(paths):
            return load_sweep(paths.spec_copy).spec
        return load_sweep(paths.spec).spec
    except UserError as e:
        raise UserError(*(f"{paths.root}/{line}" for line in e.problems)) from e


def is_damaged(paths: SweepPaths) -> bool:
    """Whether `sweep.yaml` is missing, truncated or changed, and its copy is intact.

    A user who edits the file deletes its checksum. An invalid spec without a checksum is therefore
    the user's mistake, not damage.
    """
    try:
        data = paths.spec.read_bytes()
        data.decode()
    except (OSError, UnicodeDecodeError):
        return _has_copy(paths)
    intact = yaml_is_intact(data) and not _is_truncated(paths, data)
    return not intact and _has_copy(paths)


def _is_truncated(paths: SweepPaths, data: bytes) -> bool:
    try:
        copy = paths.spec_copy.read_bytes()
    except OSError:
        return False
    return len(data) < len(copy) and copy.startswith(data)


def _has_copy(paths: SweepPaths) -> bool:
    try:
        load_sweep(paths.spec_copy)
    except UserError:
        return False
    return True
