"""Gives a trial's user code a working directory and temporary folders of its own.

Libraries look for "the last checkpoint" in a relative folder, or clear one with a fixed name below
`tempfile.gettempdir()`. Shared by two trials, such a folder gives one trial the other's weights.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import chdir, contextmanager, suppress
from pathlib import Path

from results.trial_paths import TrialPaths
from trainables.user_code.frames import note_folder

_PREFIX = "tune-worker-"
_LOCK = ".lock"
_MIN_AGE_S = 60.0
"""A younger folder may be one whose owner has not locked it yet."""
_LONGEST_END_S, _POLL_S = 30.0, 0.05
_held: list[int] = []
"""Lock of this process's temporary folder: it ends with the process."""


@contextmanager
def attempt_lock(paths: TrialPaths, attempt: int) -> Iterator[None]:
    """Hold the lock of this attempt in the block, after the processes of earlier ones have ended.

    They share the working directory. Ray ends the workers of a killed attempt a moment after its
    next attempt may begin, and those of a killed driver only after seconds. What still runs after
    half a minute is perhaps a server that the code has started: a warning says so.
    """
    lock = paths.processes(attempt)
    lock.parent.mkdir(parents=True, exist_ok=True)
    file = os.open(lock, os.O_CREAT | os.O_RDWR, 0o600)
    deadline = time.monotonic() + _LONGEST_END_S
    try:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(file, fcntl.LOCK_SH)
        earlier = [number for number in range(1, attempt) if paths.processes(number).exists()]
        while runs := [number for number in earlier if _has_processes(paths.processes(number))]:
            if time.monotonic() > deadline:
                problem = f"processes of attempt {runs[0]} of this trial still run"
                sys.stderr.write(f"warning: {problem}\n")
                break
            time.sleep(_POLL_S)
        yield
    finally:
        os.close(file)


def _has_processes(lock: Path) -> bool:
    """Whether a process holds the lock of an attempt."""
    file = os.open(lock, os.O_RDWR)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks
        return False
    finally:
        os.close(file)
    return False


def enter_private_folders(paths: TrialPaths) -> None:
    """Change this process's working directory to the trial's, and give it a new `TMPDIR`.

    All ranks and attempts of a trial share the working directory, so a loop can resume from what
    it wrote there. The temporary folder belongs to this process. The next caller on the same
    machine deletes it after the process has ended, however it ended.
    """
    paths.work.mkdir(parents=True, exist_ok=True)
    os.chdir(paths.work)
    own, lock = _new_folder()
    _held.append(lock)
    _use_temporary(own)


@contextmanager
def private_folders(paths: TrialPaths) -> Iterator[None]:
    """`enter_private_folders` for a block, in a process that runs other trials later."""
    paths.work.mkdir(parents=True, exist_ok=True)
    before = os.environ.get("TMPDIR")
    with temporary_folder() as own, chdir(paths.work):
        try:
            _use_temporary(str(own))
            yield
        except Exception as e:
            note_folder(e)
            raise
        finally:
            _use_temporary(before)


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """A temporary folder for the block. If this process is killed, the next caller deletes it."""
    own, lock = _new_folder()
    try:
        yield Path(own)
    finally:
        shutil.rmtree(own, ignore_errors=True)
        os.close(lock)


def _use_temporary(folder: str | None) -> None:
    if folder is None:
        os.environ.pop("TMPDIR", None)
    else:
        os.environ["TMPDIR"] = folder
    tempfile.tempdir = None  # read TMPDIR again


def _new_folder() -> tuple[str, int]:
    """A new temporary folder, and its lock; those of processes that have ended are deleted."""
    shared = Path(tempfile.gettempdir())
    for folder in _abandoned(shared):
        shutil.rmtree(folder, ignore_errors=True)
    # A short path: libraries create sockets in it, whose paths may have 107 bytes.
    own = tempfile.mkdtemp(prefix=_PREFIX, dir=shared)
    lock = os.open(Path(own, _LOCK), os.O_CREAT | os.O_WRONLY, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    return own, lock


def _abandoned(shared: Path) -> Iterator[Path]:
    """This user's folders whose lock no process holds."""
    for folder in shared.glob(f"{_PREFIX}*/"):
        try:
            entry = folder.lstat()
            if entry.st_uid != os.getuid() or time.time() - entry.st_mtime < _MIN_AGE_S:
                continue
            lock = os.open(folder / _LOCK, os.O_CREAT | os.O_WRONLY, 0o600)
        except OSError:  # another process deletes it
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield folder
        except BlockingIOError:
            continue
        finally:
            os.close(lock)
