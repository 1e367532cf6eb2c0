"""Read `sweep.yaml` of a sweep folder, or its copy in `history/` when the file is damaged."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from results.paths import SweepPaths
from search_spaces.checksum import yaml_is_intact
from search_spaces.errors import DamagedRecordsError, UserError
from search_spaces.files import read_regular
from search_spaces.loading.sweep_file import load_sweep
from search_spaces.spec.sweep import SweepSpec

_BY_VALUE = re.compile(r"-([0-9a-f]{64})\.py$")


def read_spec(paths: SweepPaths) -> SweepSpec:
    """The spec of a sweep, from the copy if `sweep.yaml` is damaged or missing.

    `${ENV}` is not expanded: the file may be a stranger's. See `expand_now`.

    Raises:
        UserError: an edited file is wrong; each line begins with the sweep's folder.
        DamagedRecordsError: neither file is readable; likewise.
    """
    try:
        spec = load_sweep(spec_file(paths), frozen=True).spec
    except UserError as e:
        root, kind = f"{paths.root}/", UserError if _is_intact(paths) else DamagedRecordsError
        raise kind(*(root + line.removeprefix(root) for line in e.problems)) from e
    return _with_own_code(paths, spec)


def _with_own_code(paths: SweepPaths, spec: SweepSpec) -> SweepSpec:
    """The spec with the path of code that is stored by value in this folder, which may have moved.

    The name of the file has its digest: who trusts `sweep.yaml` trusts this content.
    """
    where, _, name = spec.trainable.rpartition(":")
    own = paths.code / Path(where).name
    if (stored := _BY_VALUE.search(own.name)) is None or not own.is_file():
        return spec
    if hashlib.sha256(read_regular(own)).hexdigest() != stored[1]:
        raise UserError(f"{own}: does not match its checksum: the file is damaged, or was edited")
    return spec.model_copy(update={"named": f"{own}:{name}"})


def spec_file(paths: SweepPaths) -> Path:
    """The file that `read_spec` reads."""
    return paths.spec_copy if is_damaged(paths) else paths.spec


def is_damaged(paths: SweepPaths) -> bool:
    """Whether `sweep.yaml` is missing, truncated or changed, and its copy is intact.

    A user who edits the file deletes its checksum. An invalid spec without a checksum is therefore
    the user's mistake, not damage.
    """
    return not _is_intact(paths) and _has_copy(paths)


def _is_intact(paths: SweepPaths) -> bool:
    try:
        data = read_regular(paths.spec)
        has_text = bool(data.decode().strip())
    except (OSError, UnicodeDecodeError):
        return False
    return has_text and yaml_is_intact(data) and not _is_truncated(paths, data)


def _is_truncated(paths: SweepPaths, data: bytes) -> bool:
    try:
        copy = read_regular(paths.spec_copy)
    except OSError:
        return False
    return len(data) < len(copy) and copy.startswith(data)


def _has_copy(paths: SweepPaths) -> bool:
    try:
        load_sweep(paths.spec_copy, frozen=True)
    except UserError:
        return False
    return True
