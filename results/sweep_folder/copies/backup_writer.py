"""Takes a backup, also of a sweep that runs."""

from __future__ import annotations

import hashlib
import os
import re
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from results.checkpoints.commit import MANIFEST, Manifest
from results.checkpoints.retention import Retention
from results.checkpoints.streaming_hash import FileEntry, hash_file
from results.paths import SweepPaths
from results.records.pipeline import PipelinePaths
from results.records.trial import read_reports
from results.storage.object_store import ContentMismatchError, ObjectStore
from results.sweep_folder.copies.backup import (
    BACKUPS,
    FILES,
    Backup,
    BackupFile,
    SavedRun,
    labels,
    read_backup,
    write_backup,
)
from results.trial_paths import TrialPaths
from search_spaces.errors import UserError

_THREADS = 8
_TRIES = 3
_GROWING = (".jsonl", ".journal", ".log")
_LEFT_OUT = re.compile(r"ray|inbox|owner\.lock.*|records\.jsonl")
"""Names in the sweep folder: caches, commands, the owner, and a log that a restore writes again."""
_UNSAVED = re.compile(r"\..*|processes\.lock|.*\.damaged")
"""Names at any depth: temporary files, locks, and checkpoints that were found damaged."""


@dataclass
class Sent:
    """Sends contents that the target lacks; several threads may use it.

    Attributes:
        files, size: number and bytes of the contents that were sent.
    """

    objects: ObjectStore
    files: int = 0
    size: int = 0
    _known: dict[str, int] = field(init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._known = self.objects.sizes(FILES)

    def data(self, file: Path) -> BackupFile:
        """Send a file that may change meanwhile; of one that grows, the complete lines."""
        modified, data = file.stat().st_mtime, file.read_bytes()
        if file.suffix in _GROWING:
            data = data[: data.rfind(b"\n") + 1]
        entry = FileEntry(size=len(data), sha256=hashlib.sha256(data).hexdigest())
        if self._claim(entry):
            self.objects.put(_key(entry), data)
        return _saved(entry, modified)

    def file(self, file: Path, entry: FileEntry | None = None) -> BackupFile:
        """Send a file of any size.

        Args:
            entry: its size and hash, if a manifest has them.

        Raises:
            ContentMismatchError: the file is not as the entry says, or changes all the time.
        """
        for attempt in range(_TRIES):
            modified, found = file.stat().st_mtime, entry or hash_file(file)
            try:
                if self._claim(found):
                    self.objects.send(_key(found), file, found.sha256)
                return _saved(found, modified)
            except ContentMismatchError:
                if entry is not None or attempt == _TRIES - 1:
                    raise
        raise AssertionError

    def _claim(self, entry: FileEntry) -> bool:
        """Whether the caller has to send this content: no other thread does."""
        with self._lock:
            if self._known.get(entry.sha256) == entry.size:
                return False
            self._known[entry.sha256] = entry.size
            self.files, self.size = self.files + 1, self.size + entry.size
            return True


def take_backup(
    root: Path,
    key: str,
    objects: ObjectStore,
    sweeps: Mapping[SweepPaths, Retention],
    runs: Sequence[SavedRun] = (),
) -> tuple[Backup, Sent]:
    """Send what the target lacks, and then the manifest.

    Args:
        root, key: the folder of the sweep or pipeline, and what identifies it.
        objects: where its backups are.
        sweeps: the sweep, or those of the pipeline, and the checkpoints of each trial to save.

    Raises:
        UserError: the target holds another sweep, or a file cannot be saved.
        OSError: the storage failed.
    """
    if labels(objects) and (held := read_backup(objects)).sweep != key:
        raise UserError(
            f"{objects.address}: holds backups of another sweep of this name, begun elsewhere "
            f"({held.label}); name another target"
        )
    sent, created = Sent(objects), time.time()
    named: dict[Path, BackupFile] = {}
    records = PipelinePaths(root).records
    if records.is_file():  # before its stages: what it says of them is then saved
        named[records] = sent.data(records)
    with ThreadPoolExecutor(_THREADS) as pool:
        for paths, retention in sweeps.items():
            named |= _sweep(paths, sent, retention, pool)
        folders = {paths.root for paths in sweeps}
        named |= _files(root, {*folders, records}, sent, pool) if root not in folders else {}
    content = {f.relative_to(root).as_posix(): s for f, s in sorted(named.items())}
    backup = Backup(sweep=key, name=root.name, created=created, files=content, runs=tuple(runs))
    write_backup(objects, backup)
    return backup, sent


def _sweep(
    paths: SweepPaths, sent: Sent, retention: Retention, pool: ThreadPoolExecutor
) -> dict[Path, BackupFile]:
    trials = [TrialPaths(Path(e.path)) for e in _entries(paths.trials) if e.is_dir()]
    parts = list(pool.map(lambda trial: _trial(trial, sent, retention), trials))
    files = _files(paths.root, {paths.trials}, sent, pool)
    return {**files, **{f: s for part in parts for f, s in part.items()}}


def _files(
    root: Path, excluded: Collection[Path], sent: Sent, pool: ThreadPoolExecutor
) -> dict[Path, BackupFile]:
    """Save the files of a sweep's or pipeline's folder that need no order."""
    rest = [f for f in _walk(root, excluded) if not _is_left_out(root, f)]
    saved = list(pool.map(lambda file: _file(file, sent), rest))
    return {f: s for f, s in zip(rest, saved, strict=True) if s}


def prune_backups(objects: ObjectStore, keep: int) -> int:
    """Delete all but the newest backups, and the contents that only they had.

    Args:
        keep: number of backups to keep, at least 1.

    Returns:
        Number of backups that were deleted.

    Raises:
        UserError: a backup to keep cannot be read; nothing is deleted.
        OSError: the storage failed.
    """
    known = labels(objects)
    old = known[:-keep]
    if not old:
        return 0
    kept = [read_backup(objects, label) for label in known[-keep:]]
    used = {entry.sha256 for backup in kept for entry in backup.files.values()}
    for label in old:  # the manifests first: none may name a content that is gone
        objects.remove(f"{BACKUPS}/{label}.json")
    unused = objects.sizes(FILES).keys() - used
    with ThreadPoolExecutor(_THREADS) as pool:
        list(pool.map(lambda name: objects.remove(f"{FILES}/{name}"), unused))
    return len(old)


def _trial(trial: TrialPaths, sent: Sent, retention: Retention) -> dict[Path, BackupFile]:
    """Save a trial. One that runs writes reports before its record, and checkpoints after them.

    So the record is read first, then the checkpoints, then the reports: no file that is saved
    refers to one that is not.
    """
    found: dict[Path, BackupFile] = {}
    if trial.record.is_file():
        found[trial.record] = sent.data(trial.record)
    for attempt in range(_TRIES):
        try:
            found |= _checkpoints(trial, sent, retention)
            break
        except FileNotFoundError:  # a newer checkpoint took the place of this one
            if attempt == _TRIES - 1:
                raise
    for file in _walk(trial.root, {trial.checkpoints}):
        if file != trial.record and (saved := _file(file, sent)):
            found[file] = saved
    return found


def _checkpoints(trial: TrialPaths, sent: Sent, retention: Retention) -> dict[Path, BackupFile]:
    found = {}
    for step in _steps(trial, retention):
        folder = trial.checkpoint(step)
        text = folder / MANIFEST
        manifest = Manifest.model_validate_json(text.read_bytes())
        for name, entry in manifest.files.items():
            try:
                found[folder / name] = sent.file(folder / name, entry)
            except ContentMismatchError as e:
                raise UserError(f"{folder / name}: {e}; tune resume renames the damaged") from e
        found[text] = sent.data(text)
    return found


def _steps(trial: TrialPaths, retention: Retention) -> Collection[int]:
    steps = trial.checkpoint_steps()
    reports = {r.step: r for r in read_reports(trial)} if retention.needs_reports else {}
    return sorted({*steps[-retention.newest :], *retention.protected(steps, reports)})


def _file(file: Path, sent: Sent) -> BackupFile | None:
    """Save a file; None if it is gone meanwhile."""
    try:
        return sent.data(file) if file.suffix in _GROWING else sent.file(file)
    except FileNotFoundError:
        return None
    except ContentMismatchError:
        return sent.data(file)  # a program writes to it all the time


def _walk(root: Path, excluded: Collection[Path]) -> Iterator[Path]:
    """Regular files below a folder; links are not followed."""
    for entry in _entries(root):
        path = Path(entry.path)
        if path in excluded or _UNSAVED.fullmatch(entry.name) or entry.is_symlink():
            continue
        if entry.is_dir():
            yield from _walk(path, excluded)
        elif entry.is_file():
            yield path


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except FileNotFoundError:
        return []


def _is_left_out(root: Path, file: Path) -> bool:
    return _LEFT_OUT.fullmatch(file.relative_to(root).parts[0]) is not None


def _key(entry: FileEntry) -> str:
    return f"{FILES}/{entry.sha256}"


def _saved(entry: FileEntry, modified: float) -> BackupFile:
    return BackupFile(size=entry.size, sha256=entry.sha256, modified=modified)
