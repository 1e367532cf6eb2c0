"""The content of a backup: each file under its SHA-256, and a manifest, which is sent last.

A file that did not change since an earlier backup is stored once. A manifest names all files of the
sweep folder, so each backup can be restored alone.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from results.checkpoints.streaming_hash import FileEntry
from results.storage.object_store import ObjectStore, open_object_store
from search_spaces.checksum import add_json_checksum, json_is_intact
from search_spaces.errors import DamagedRecordsError, UserError, suggest

FILES, BACKUPS = "files", "backups"
_VERSION = 1


class BackupFile(FileEntry):
    """A file: size, SHA-256, and when it was last changed, in Unix seconds."""

    modified: float


class SavedRun(BaseModel):
    """What people may have changed in a tracker's run; the sweep folder has the rest.

    Attributes:
        trial, average: id of its trial, or digest of its average; both empty for the sweep's run.
    """

    model_config = ConfigDict(frozen=True)

    trial: str
    average: str
    name: str
    tags: dict[str, str]


class Backup(BaseModel):
    """A manifest.

    Attributes:
        sweep: key of the sweep, which identifies it.
        created: Unix seconds.
        files: by POSIX path in the sweep folder.
        runs: of the tracker.
    """

    model_config = ConfigDict(frozen=True)

    version: int = _VERSION
    sweep: str
    name: str
    created: float
    files: dict[str, BackupFile]
    runs: tuple[SavedRun, ...] = ()

    @property
    def label(self) -> str:
        """Its time in UTC, which names it: `2026-11-24T01-30-00Z`."""
        return time.strftime("%Y-%m-%dT%H-%M-%SZ", time.gmtime(self.created))


def open_target(target: str) -> ObjectStore:
    """Open a folder, or an address such as `s3://bucket/prefix`.

    Raises:
        UserError: the address is not valid.
    """
    if "://" not in target:
        target = Path(target).expanduser().absolute().as_uri()
    return open_object_store(target)


def labels(objects: ObjectStore) -> list[str]:
    """The backups of a sweep, oldest first."""
    return sorted(key.removesuffix(".json") for key in objects.sizes(BACKUPS))


def write_backup(objects: ObjectStore, backup: Backup) -> None:
    """Write the manifest: from now on the backup exists."""
    text = add_json_checksum(backup.model_dump_json())
    objects.put(f"{BACKUPS}/{backup.label}.json", text.encode())


def read_backup(objects: ObjectStore, label: str | None = None) -> Backup:
    """Read a manifest; default: the newest.

    Raises:
        UserError: there is none, or it cannot be read.
    """
    known = labels(objects)
    if not known:
        raise UserError(f"{objects.address}: holds no backup; the address is TARGET/NAME")
    if label is not None and label not in known:
        raise UserError(f"{objects.address}: no backup '{label}'{suggest(label, known)}")
    chosen = label or known[-1]
    data = objects.read(f"{BACKUPS}/{chosen}.json") or b""
    try:
        if not json_is_intact(data):
            raise ValueError("does not match its checksum")
        version = json.loads(data)["version"]
        if version != _VERSION:
            raise ValueError(f"version {version} is of another release")
        return Backup.model_validate_json(data)
    except (ValidationError, ValueError, KeyError, TypeError) as e:
        reason = str(e).splitlines()[0]
        raise DamagedRecordsError(
            f"{objects.address}: backup {chosen} cannot be read ({reason}); {others(known, chosen)}"
        ) from e


def others(known: list[str], label: str) -> str:
    """Advice to try another backup than a damaged one."""
    left = [other for other in known if other != label]
    return f"try another: --at {left[-1]}" if left else "there is no other one"
