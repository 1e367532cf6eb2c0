"""Commit protocol of checkpoints: a checkpoint is complete or absent, whenever the writer dies.

A checkpoint folder counts only with its `manifest.json` (names, sizes, SHA-256, step). The manifest
is written last, into a staging folder that is then renamed. Readers verify, and fall back to an
older checkpoint.
"""

from __future__ import annotations

import ctypes
import glob
import logging
import os
import platform
import shutil
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import psutil
from pydantic import BaseModel, ConfigDict, ValidationError

from results.checkpoints.binding import Binding, binding_of, foreign_reason
from results.checkpoints.streaming_hash import (
    FileEntry,
    hash_file,
    is_hash_sidecar,
    pop_hash_sidecar,
)
from results.storage.atomic import fsync_dir, write_atomic
from results.storage.fault_injection import fault_point
from results.trial_paths import TrialPaths
from search_spaces.files import read_regular

log = logging.getLogger(__name__)

MANIFEST = "manifest.json"
DAMAGED = ".damaged"

_THREADS = 4
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2


class Manifest(BaseModel):
    """`manifest.json`: the step, and every file by its POSIX path inside the folder.

    `binding` is None for what is no trial's, and for checkpoints that an older version wrote.
    """

    model_config = ConfigDict(frozen=True)

    step: int
    files: dict[str, FileEntry]
    binding: Binding | None = None


@dataclass(frozen=True)
class Checkpoint:
    """A committed checkpoint that matched its manifest when it was verified."""

    step: int
    folder: Path
    manifest: Manifest


class CheckpointError(Exception):
    """A checkpoint cannot be used: its folder, and the reason in a few words."""

    def __init__(self, folder: Path, reason: str) -> None:
        self.folder = folder
        self.reason = reason
        super().__init__(f"{folder}: {reason}")


ReadCheckpoints = Callable[[TrialPaths], Iterator[Checkpoint | CheckpointError]]
"""Yields the checkpoints of a trial, verified, newest first."""


def staging_folder(paths: TrialPaths, step: int, attempt: int) -> Path:
    """Folder in which one attempt writes a checkpoint before it is committed.

    Only computes the path, so every rank can call it. One rank calls `create_staging`.
    """
    return paths.checkpoints / f".step_{step:08d}.attempt_{attempt:04d}"


def create_staging(folder: Path) -> None:
    """Create an empty staging folder; deletes one that a dead process left."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    fault_point("checkpoint:opened")


def commit(folder: Path, final: Path, *, step: int, binding: Binding | None = None) -> Manifest:
    """Make everything in a folder durable, and rename it to its final name.

    A crash before the rename leaves `final` unchanged. An existing `final` (the step was
    repeated) is exchanged in one system call. File systems that cannot exchange names (NFS) need
    two renames; between them readers fall back to an older checkpoint.

    Args:
        folder: complete, on the same file system as `final`; does not exist afterwards.
        final: the folder that readers look for.
        binding: whose checkpoint it is; None for another folder.
    """
    manifest = Manifest(step=step, files=sync_and_hash(folder), binding=binding)
    fault_point("checkpoint:folders-synced")
    write_atomic(folder / MANIFEST, manifest.model_dump_json(indent=1).encode())
    final.parent.mkdir(parents=True, exist_ok=True)
    _rename_over(folder, final)
    fault_point("checkpoint:renamed")
    fsync_dir(final.parent)
    fault_point("checkpoint:durable")
    return manifest


@contextmanager
def staged(final: Path) -> Iterator[Path]:
    """An empty hidden folder that becomes `final` when the block ends without an error.

    Deletes those that processes of this machine left which were killed.
    """
    mine = f".{final.name}.{platform.node()}."
    for left in final.parent.glob(f"{glob.escape(mine)}*"):
        pid = left.name.removeprefix(mine)
        if pid.isdecimal() and not psutil.pid_exists(int(pid)):
            shutil.rmtree(left, ignore_errors=True)
    folder = final.with_name(f"{mine}{os.getpid()}")
    create_staging(folder)
    try:
        yield folder
        commit(folder, final, step=0)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def sync_and_hash(folder: Path) -> dict[str, FileEntry]:
    """Make everything in a folder durable; returns the entries of its manifest."""
    entries = _sync_and_hash_files(_files(folder))
    for sub in folder.glob("**/"):
        fsync_dir(sub)
    return entries


def verify(folder: Path, *, hashes: bool = True, manifest: Path | None = None) -> Manifest:
    """Compare a committed folder with its manifest. Files that the manifest lacks are ignored.

    Args:
        hashes: read every byte; False compares names and sizes only.
        manifest: path of the manifest, if it is not in the folder.

    Raises:
        CheckpointError: the checkpoint is not intact, or cannot be read.
    """
    try:
        expected = Manifest.model_validate_json(read_regular(manifest or folder / MANIFEST))
    except FileNotFoundError:
        raise CheckpointError(folder, f"{MANIFEST} is missing") from None
    except (OSError, ValidationError) as e:
        raise CheckpointError(folder, f"{MANIFEST} is not readable") from e
    with ThreadPoolExecutor(_THREADS) as pool:
        results = pool.map(lambda n: _problem(folder, n, expected.files[n], hashes), expected.files)
        problems = zip(expected.files, results, strict=True)
        found = next((f"{name} {problem}" for name, problem in problems if problem), None)
    if found:
        raise CheckpointError(folder, found)
    return expected


def newest_intact(
    paths: TrialPaths, checkpoints: ReadCheckpoints | None = None
) -> Checkpoint | None:
    """The newest intact checkpoint; logs a warning for each damaged one that is newer.

    Args:
        checkpoints: those of a trial, newest first; default: `verify_all`.
    """
    for found in (checkpoints or verify_all)(paths):
        if isinstance(found, Checkpoint):
            return found
        log.warning("checkpoint skipped, %s", found)
    return None


def damaged_checkpoints(paths: TrialPaths) -> list[CheckpointError]:
    """Every damaged checkpoint of a trial, newest first (reads all bytes).

    Those that a resume has already renamed come last.
    """
    found = [c for c in verify_all(paths) if isinstance(c, CheckpointError)]
    renamed = sorted(paths.checkpoints.glob(f"*{DAMAGED}"), reverse=True)
    return [
        *found,
        *(CheckpointError(p, "is damaged; renamed by a resume") for p in renamed),
    ]


def _files(folder: Path) -> dict[str, Path]:
    """Files for the manifest, by POSIX path inside the folder."""
    found = sorted(p for p in folder.rglob("*") if p.is_file() and not is_hash_sidecar(p))
    named = {p.relative_to(folder).as_posix(): p for p in found}
    manifests = {MANIFEST} | {n for n in named if n.startswith(f".{MANIFEST}.")}
    return {name: path for name, path in named.items() if name not in manifests}


def _sync_and_hash_files(files: Mapping[str, Path]) -> dict[str, FileEntry]:
    """Flush every file to the disk and hash it; flushing and hashing overlap.

    Large files that `streaming_hash.write_hashed` wrote are already durable and hashed.
    """
    entries = {name: pop_hash_sidecar(path) for name, path in files.items()}
    left = [name for name, entry in entries.items() if entry is None]
    with ThreadPoolExecutor(_THREADS) as pool:
        syncs = [pool.submit(_sync, files[name]) for name in left]
        hashes = [pool.submit(hash_file, files[name]) for name in left]
        for sync in syncs:
            sync.result()
        hashed = dict(zip(left, (made.result() for made in hashes), strict=True))
    return {name: entry or hashed[name] for name, entry in entries.items()}


def _sync(path: Path) -> None:
    with open(path, "rb") as f:
        os.fsync(f.fileno())
    fault_point("checkpoint:file-synced")


def _problem(folder: Path, name: str, entry: FileEntry, hashes: bool) -> str | None:
    try:
        return _compare(folder, name, entry, hashes)
    except (OSError, ValueError) as e:  # ValueError: a name with a zero byte
        return f"cannot be read ({e})"


def _compare(folder: Path, name: str, entry: FileEntry, hashes: bool) -> str | None:
    parts = PurePosixPath(name)
    if parts.is_absolute() or ".." in parts.parts:
        return "points outside of the folder"
    path = folder / name
    if not path.resolve().is_relative_to(folder.resolve()):
        return "is a link that points outside of the folder"
    if not path.is_file():
        return "is missing"
    size = path.stat().st_size
    if size != entry.size:
        return f"has {size} bytes, not {entry.size}"
    if not hashes:
        return None
    same = hash_file(path).sha256 == entry.sha256
    return None if same else "has another SHA-256 than its manifest says"


def verify_all(paths: TrialPaths) -> Iterator[Checkpoint | CheckpointError]:
    """Verify every committed checkpoint of a trial, newest first."""
    own = binding_of(paths)
    for step in reversed(paths.checkpoint_steps()):
        folder = paths.checkpoint(step)
        try:
            manifest = verify(folder)
            require_own(folder, manifest, own)
        except CheckpointError as e:
            yield e
            continue
        if manifest.step == step:
            yield Checkpoint(step, folder, manifest)
        else:
            yield CheckpointError(folder, f"{MANIFEST} is of step {manifest.step}")


def require_own(folder: Path, manifest: Manifest, own: Binding | None) -> None:
    """Raise `CheckpointError` for another trial's checkpoint."""
    if reason := foreign_reason(folder, manifest.binding, own):
        raise CheckpointError(folder, reason)


def _rename_over(folder: Path, final: Path) -> None:
    if not final.exists():
        os.rename(folder, final)
        return
    if exchange(folder, final):
        shutil.rmtree(folder, ignore_errors=True)
        return
    aside = final.with_name(f".{final.name}.replaced")
    shutil.rmtree(aside, ignore_errors=True)
    os.rename(final, aside)
    fault_point("checkpoint:replaced")
    os.rename(folder, final)
    shutil.rmtree(aside, ignore_errors=True)


def exchange(a: Path, b: Path) -> bool:
    """Swap two paths atomically with Linux `renameat2(RENAME_EXCHANGE)`; False if unsupported."""
    try:
        renameat2 = ctypes.CDLL(None).renameat2
    except (AttributeError, OSError, TypeError):
        return False
    names = os.fsencode(a), os.fsencode(b)
    return bool(renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE) == 0)
