"""The folder of a local cluster's own files: sockets, logs, spilled objects.

Only this user may read it, and it goes with the cluster. The logs of Ray's processes are copied
into the sweep folder first if they may explain a failure. After a driver that was killed a shell
that waits for its end runs this module, which removes the folder; else the next driver does.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

import psutil

from results.own_program import AfterDeath, module_command
from search_spaces.errors import UserError
from search_spaces.redaction import redact_bytes

_LOCK, _LOGS = "driver.lock", "logs"
_RAY = "r"
"""Name of Ray's folder in ours: Ray gives its folders mode 0777."""
_TITLE = "ray::"
_LONGEST = 43
"""Bytes of the path of Ray's folder: Ray adds 64 for its sockets, and the system allows 107."""
_REMOVE_S = 30.0
_TAIL = 256 * 1024
"""Bytes of each log that are kept: its end."""
_AFTER_DEATH_S = 10.0
"""Workers end by themselves in seconds; Ray's agents try for a minute to reach the cluster."""
_MAX_LOGS, _MAX_SESSIONS = 100, 5
"""Logs that are kept of a session, the newest ones, and sessions in a sweep folder."""


@contextmanager
def session_folder(logs: Path | None, failed: Callable[[], bool]) -> Iterator[Path]:
    """Create the folder, and remove it after the block; yields the one in it that is for Ray.

    Args:
        logs: gets a folder with the ends of Ray's logs; None keeps none.
        failed: asked at the end whether they explain a failure; an exception also counts as one.
    """
    remove_stale()
    folder = Path(tempfile.mkdtemp(prefix=_prefix(), dir=base_folder()))  # mode 0700
    keep_logs_in(folder / _RAY, logs)
    with _locked(folder), _removed_after_death():
        keep = True
        try:
            yield folder / _RAY
            keep = failed()
        finally:
            if keep:
                _keep_logs(folder)
            _remove(folder)


def keep_logs_in(folder: Path, logs: Path | None) -> None:
    """Set the folder that gets the ends of Ray's logs; `folder` is what `session_folder` yields."""
    (folder.parent / _LOGS).write_text("" if logs is None else str(logs))


def remove_stale() -> None:
    """Remove the folders of drivers that were killed, and end what they started."""
    for stale in base_folder().glob(f"{_prefix()}*"):
        _remove_if_dead(stale)


def _prefix() -> str:
    return f"tune-{os.getuid()}-"


def user_folder(*, create: bool = False) -> Path:
    """A folder for what `tune up` keeps ready, which no other user can enter.

    Args:
        create: whether it is made if it is missing.

    Raises:
        UserError: another user has made it.
        FileNotFoundError: it is missing.
    """
    folder = base_folder() / f"tune-{os.getuid()}.up"
    if create:
        folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not folder.is_dir() or folder.is_symlink() or found.st_uid != os.getuid():
        raise UserError(f"{folder}: is not a folder of yours; set RAY_TMPDIR to one")
    folder.chmod(0o700)
    return folder


def base_folder() -> Path:
    """`$RAY_TMPDIR`, or the system's folder for temporary files; `/tmp` if that path is too long.

    Not `$XDG_RUNTIME_DIR`, which is removed when its user logs out.
    """
    base = os.environ.get("RAY_TMPDIR") or tempfile.gettempdir()
    whole = os.fsencode(base) + os.fsencode(_prefix()) + b"12345678/" + os.fsencode(_RAY)
    return Path(base if len(whole) <= _LONGEST and Path(base).is_dir() else "/tmp")


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the folder's lock, which the system frees when this process ends in any way."""
    with open(folder / f"{_LOCK}.new", "w") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        (folder / f"{_LOCK}.new").rename(folder / _LOCK)  # never seen without its holder
        yield


@contextmanager
def _removed_after_death() -> Iterator[None]:
    """Run `remove_stale` after a death of this process within the block, in another one."""
    waiting = AfterDeath(module_command(__name__), _AFTER_DEATH_S, subprocess.DEVNULL)
    try:
        yield
    finally:
        waiting.cancel()


def _remove_if_dead(folder: Path) -> None:
    """Remove the folder of a driver that is gone, if this user made it."""
    with suppress(OSError):  # another user's, not locked yet, or just removed
        if folder.is_symlink() or folder.stat().st_uid != os.getuid():
            return
        with open(folder / _LOCK) as f:
            fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _keep_logs(folder)
            _remove(folder)


def _remove(folder: Path) -> None:
    """Remove a folder, after the last of Ray's processes: an agent that starts creates it again."""
    deadline = time.monotonic() + _REMOVE_S
    while time.monotonic() < deadline:
        left = list(_processes_in(folder))
        for process in left:
            with suppress(psutil.Error):
                process.kill()
        shutil.rmtree(folder, ignore_errors=True)
        if not left and not folder.exists():
            return
        time.sleep(0.05)


def _processes_in(folder: Path) -> Iterator[psutil.Process]:
    """Ray's processes of a cluster that has ended: their arguments name its folder, or, of those
    that replace their arguments by a title, as agents do, the files that they have open."""
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            names = process.cmdline()
            if names and names[0].startswith(_TITLE):
                names = [file.path for file in process.open_files()]
            if any(str(folder) in name for name in names):
                yield process


def _keep_logs(folder: Path) -> None:
    """Copy the logs of Ray's processes to where the folder says, if their sweep is still there."""
    with suppress(OSError):  # a log that vanishes, a full disk
        logs = Path((folder / _LOGS).read_text())
        if logs.is_absolute() and logs.parent.parent.is_dir():
            _copy_logs(folder, logs)


def _copy_logs(folder: Path, logs: Path) -> None:
    """Copy the ends of the newest logs, redacted."""
    for session in folder.glob(f"{_RAY}/session_2*"):
        files = [p for p in (session / "logs").iterdir() if p.suffix in (".log", ".out", ".err")]
        written = [p for p in files if p.is_file() and p.stat().st_size]
        written.sort(key=lambda p: p.stat().st_mtime)
        with suppress(OSError):  # a full disk must not hide the failure
            (logs / session.name).mkdir(parents=True, exist_ok=True, mode=0o700)
            for file in written[-_MAX_LOGS:]:
                with open(file, "rb") as f:
                    (logs / session.name / file.name).write_bytes(redact_bytes(_end(f)))
    for old in sorted(logs.glob("session_2*"))[:-_MAX_SESSIONS]:
        shutil.rmtree(old, ignore_errors=True)


def _end(file: IO[bytes]) -> bytes:
    file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL))
    return file.read()


if __name__ == "__main__":
    remove_stale()
