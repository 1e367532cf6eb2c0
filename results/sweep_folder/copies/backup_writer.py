"""Takes a backup, also of a sweep that runs."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
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
from results.sweep_folder.copies.contents import (
    GROWING,
    THREADS,
    entries,
    files_below,
    files_of_sweep,
    read_complete,
)
from results.trial_paths import TrialPaths
from search_spaces.errors import UserError

_TRIES = 3


@dataclass
class BackupUploader:
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

    def send_data(self, file: Path) -> BackupFile:
        """Send a file that may change meanwhile; of one that grows, the complete lines."""
        modified, data = file.stat().st_mtime, read_complete(file)
        entry = BackupFile(
            size=len(data), sha256=hashlib.sha256(data).hexdigest(), modified=modified
        )
        if self._claim(entry):
            self.objects.put(f"{FILES}/{entry.sha256}", data)
        return entry

    def send_file(self, file: Path, entry: FileEntry | None = None) -> BackupFile:
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
                    self.objects.send(f"{FILES}/{found.sha256}", file, found.sha256)
                return BackupFile(size=found.size, sha256=found.sha256, modified=modified)
            except ContentMismatchError:
                self._known.pop(found.sha256)  # another file may have that content
                if entry is not None or attempt == _TRIES - 1:
                    raise
        raise AssertionError

    def send_any(self, file: Path) -> BackupFile | None:
        """Send a file without a manifest; None if it is gone meanwhile."""
        try:
            return self.send_data(file) if file.suffix in GROWING else self.send_file(file)
        except FileNotFoundError:
            return None
        except ContentMismatchError:
            return self.send_data(file)  # a program writes to it all the time

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
) -> tuple[Backup, BackupUploader]:
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
    uploader, created = BackupUploader(objects), time.time()
    saved: dict[Path, BackupFile] = {}
    records = PipelinePaths(root).records
    if records.is_file():  # before its stages: what it says of them is then saved
        saved[records] = uploader.send_data(records)
    folders = dict.fromkeys([*(paths.root for paths in sweeps), root])
    separate = {records, *folders, *(paths.trials for paths in sweeps)}
    with ThreadPoolExecutor(THREADS) as pool:
        for paths, retention in sweeps.items():
            trials = [TrialPaths(Path(e.path)) for e in entries(paths.trials) if e.is_dir()]
            for part in pool.map(partial(_send_trial, uploader, retention), trials):
                saved |= part
        for folder in folders:
            files = list(files_of_sweep(folder, separate))
            sent = zip(files, pool.map(uploader.send_any, files), strict=True)
            saved |= {file: entry for file, entry in sent if entry}
    content = {f.relative_to(root).as_posix(): s for f, s in sorted(saved.items())}
    backup = Backup(sweep=key, name=root.name, created=created, files=content, runs=tuple(runs))
    write_backup(objects, backup)
    return backup, uploader


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
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(lambda name: objects.remove(f"{FILES}/{name}"), unused))
    return len(old)


def _send_trial(
    uploader: BackupUploader, retention: Retention, trial: TrialPaths
) -> dict[Path, BackupFile]:
    """Save a trial in the order of `contents`."""
    saved: dict[Path, BackupFile] = {}
    if trial.record.is_file():
        saved[trial.record] = uploader.send_data(trial.record)
    for attempt in range(_TRIES):
        try:
            saved |= _send_checkpoints(uploader, retention, trial)
            break
        except FileNotFoundError:  # a newer checkpoint took the place of this one
            if attempt == _TRIES - 1:
                raise
    for file in files_below(trial.root, {trial.checkpoints, trial.record}):
        if entry := uploader.send_any(file):
            saved[file] = entry
    return saved


def _send_checkpoints(
    uploader: BackupUploader, retention: Retention, trial: TrialPaths
) -> dict[Path, BackupFile]:
    saved = {}
    for step in _steps(trial, retention):
        folder = trial.checkpoint(step)
        text = folder / MANIFEST
        manifest = Manifest.model_validate_json(text.read_bytes())
        for name, entry in manifest.files.items():
            try:
                saved[folder / name] = uploader.send_file(folder / name, entry)
            except ContentMismatchError as e:
                raise UserError(f"{folder / name}: {e}; tune resume renames the damaged") from e
        saved[text] = uploader.send_data(text)
    return saved


def _steps(trial: TrialPaths, retention: Retention) -> Collection[int]:
    steps = trial.checkpoint_steps()
    reports = {r.step: r for r in read_reports(trial)} if retention.needs_reports else {}
    return sorted({*steps[-retention.newest :], *retention.protected(steps, reports)})
