"""Checkpoints that are whole or not there at all, whenever the writer dies.

A folder of files counts only when its `manifest.json` (names, sizes, SHA-256, step) is in it. It
is written last, into a staging folder that is then renamed; readers verify, and fall back.
"""

from __future__ import annotations

import ctypes
import logging
import os
import shutil
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from pydantic import BaseModel, ConfigDict, ValidationError

from results.checkpoints.streaming_hash import (
    FileEntry,
    hash_file,
    is_hash_sidecar,
    pop_hash_sidecar,
)
from results.paths import TrialPaths
from results.storage.atomic import fsync_dir, write_atomic
from results.storage.fault_injection import fault_point

log = logging.getLogger(__name__)

MANIFEST = "manifest.json"
DAMAGED = ".damaged"

_THREADS = 4
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2


class Manifest(BaseModel):
    """`manifest.json`: the step, and every file by its path inside the folder (POSIX)."""

    model_config = ConfigDict(frozen=True)

    step: int
    files: dict[str, FileEntry]


@dataclass(frozen=True)
class Checkpoint:
    """A committed checkpoint that was whole when it was looked at."""

    step: int
    folder: Path
    manifest: Manifest


class CheckpointError(Exception):
    """A checkpoint that cannot be used: the folder, and the reason in a few words."""

    def __init__(self, folder: Path, reason: str) -> None:
        self.folder = folder
        self.reason = reason
        super().__init__(f"{folder}: {reason}")


def staging_folder(paths: TrialPaths, step: int, attempt: int) -> Path:
    """Folder in which one attempt writes a checkpoint before it is committed.

    A name only, so that every rank may ask; one of them calls `create_staging`.
    """
    return paths.checkpoints / f".step_{step:08d}.attempt_{attempt:04d}"


def create_staging(folder: Path) -> None:
    """Make a staging folder, empty even when a dead process left one of this name."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    fault_point("checkpoint:opened")


def commit(folder: Path, final: Path, *, step: int) -> Manifest:
    """Make everything in a folder durable, and rename it to its final name.

    A crash before the rename leaves `final` as it was. A folder that is already there (a redo of
    the step) is exchanged in one system call; where the file system cannot (NFS), between two
    renames there is a moment without it, in which readers fall back to an older checkpoint.

    Args:
        folder: complete, on the same file system as `final`; gone afterwards.
        final: where readers look.
        step: written into the manifest.
    """
    manifest = Manifest(step=step, files=sync_and_hash(folder))
    fault_point("checkpoint:folders-synced")
    write_atomic(folder / MANIFEST, manifest.model_dump_json(indent=1).encode())
    final.parent.mkdir(parents=True, exist_ok=True)
    _rename_over(folder, final)
    fault_point("checkpoint:renamed")
    fsync_dir(final.parent)
    fault_point("checkpoint:durable")
    return manifest


def sync_and_hash(folder: Path) -> dict[str, FileEntry]:
    """Make everything in a folder durable; gives what its manifest is to say of the files."""
    entries = _sync_and_hash_files(_files(folder))
    for sub in folder.glob("**/"):
        fsync_dir(sub)
    return entries


def verify(folder: Path, *, hashes: bool = True, manifest: Path | None = None) -> Manifest:
    """Compare a committed folder with its manifest. Files it does not name are passed over.

    Args:
        folder: of the checkpoint.
        hashes: read every byte; False compares names and sizes only.
        manifest: where it is, if not in the folder.

    Raises:
        CheckpointError: whatever is wrong with it, an unreadable disk included.
    """
    try:
        said = Manifest.model_validate_json((manifest or folder / MANIFEST).read_bytes())
    except FileNotFoundError:
        raise CheckpointError(folder, f"{MANIFEST} is missing") from None
    except (OSError, ValidationError) as e:
        raise CheckpointError(folder, f"{MANIFEST} is not readable") from e
    with ThreadPoolExecutor(_THREADS) as pool:
        made = pool.map(lambda n: _problem(folder, n, said.files[n], hashes), said.files)
        problems = zip(said.files, made, strict=True)
        found = next((f"{name} {problem}" for name, problem in problems if problem), None)
    if found:
        raise CheckpointError(folder, found)
    return said


def newest_intact(paths: TrialPaths) -> Checkpoint | None:
    """The newest checkpoint that is whole; each damaged one on the way is warned of."""
    for found in verify_all(paths):
        if isinstance(found, Checkpoint):
            return found
        log.warning("checkpoint passed over, %s", found)
    return None


def damaged_checkpoints(paths: TrialPaths) -> list[CheckpointError]:
    """Every checkpoint of a trial that is not whole, newest first (reads all bytes).

    After those that would be taken for whole come those that a resume has put aside.
    """
    found = [c for c in verify_all(paths) if isinstance(c, CheckpointError)]
    aside = sorted(paths.checkpoints.glob(f"*{DAMAGED}"), reverse=True)
    return [*found, *(CheckpointError(p, "was damaged, and put aside by a resume") for p in aside)]


def _files(folder: Path) -> dict[str, Path]:
    """What a manifest names, by its path inside the folder (POSIX)."""
    found = sorted(p for p in folder.rglob("*") if p.is_file() and not is_hash_sidecar(p))
    named = {p.relative_to(folder).as_posix(): p for p in found}
    mine = {MANIFEST} | {n for n in named if n.startswith(f".{MANIFEST}.")}
    return {name: path for name, path in named.items() if name not in mine}


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
    """Every committed checkpoint of a trial, newest first: whole, or what is wrong with it."""
    for step in reversed(paths.checkpoint_steps()):
        folder = paths.checkpoint(step)
        try:
            manifest = verify(folder)
        except CheckpointError as e:
            yield e
            continue
        if manifest.step == step:
            yield Checkpoint(step, folder, manifest)
        else:
            yield CheckpointError(folder, f"{MANIFEST} is of step {manifest.step}")


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
    """Swap two names in one step: Linux `renameat2(RENAME_EXCHANGE)`; False where there is none."""
    try:
        renameat2 = ctypes.CDLL(None).renameat2
    except (AttributeError, OSError, TypeError):
        return False
    names = os.fsencode(a), os.fsencode(b)
    return bool(renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE) == 0)
