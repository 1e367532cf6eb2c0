"""Mirrors a sweep's records to object storage, from which another machine can restore the sweep.

A thread of the driver sends the files that changed. The storage also names the driver, so that a
machine that lost its network cannot continue beside the one that took the sweep over.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, Self

from results.paths import SweepPaths
from results.storage.fencing import Owner
from results.storage.object_store import (
    ObjectStore,
    check_object_store,
    open_object_store,
)
from results.sweep_folder.copies.checkpoint_mirror import (
    OWNER,
    MirrorLocation,
    OwnershipTakenError,
    check_owner,
)
from results.sweep_folder.copies.contents import THREADS, read_complete, record_groups
from results.sweep_folder.folder import read_state
from results.sweep_folder.lock import is_driver_alive, this_process, wait_for_heartbeat
from search_spaces.errors import UserError
from search_spaces.redaction import redact
from search_spaces.spec.env_vars import expand_now
from search_spaces.spec.sweep import SweepSpec

log = logging.getLogger(__name__)

PERIOD_S = 30.0
STALE_S = 4 * PERIOD_S
RECORDS = "records"

_Stamp = tuple[int, ...]


class OnProblem(Protocol):
    """Receives a problem as one line; `fatal` ends the session."""

    def __call__(self, problem: str, *, fatal: bool = False) -> None:
        """Keep or show the problem."""


class NullMirror:
    """For a sweep without a mirror."""

    place: MirrorLocation | None = None

    def watch(self, on_problem: OnProblem) -> None:
        """Do nothing."""


class RecordMirror:
    """Sends the records of a sweep to object storage, from a thread."""

    def __init__(self, place: MirrorLocation, objects: ObjectStore, paths: SweepPaths) -> None:
        self.place, self._objects, self._paths = place, objects, paths
        self._sent: dict[Path, _Stamp] = {}
        self._closing = threading.Event()
        self._lost = False
        self._on_problem: OnProblem = lambda problem, *, fatal=False: None
        self._thread = threading.Thread(target=self._run, name="mirror", daemon=True)

    def __enter__(self) -> Self:
        """Send every `PERIOD_S` seconds until the end of the block."""
        self._thread.start()
        return self

    def watch(self, on_problem: OnProblem) -> None:
        """Report problems to this function from now on."""
        self._on_problem = on_problem

    def __exit__(self, *error: object) -> None:
        """Send the rest, and record that no driver runs the sweep now."""
        self._closing.set()
        self._thread.join()
        if self._lost:
            return
        try:
            self.send()
            if not any(self._paths.trials in file.parents for file in self._sent):
                # no trial started: free the name
                open_object_store(self.place.address).remove(self.place.sweep, recursive=True)
                return
            self._send_heartbeat(released=True)
        except (OSError, OwnershipTakenError) as e:
            self._on_problem(f"not all records are in {self._objects.address} ({_first_line(e)})")

    def send(self) -> None:
        """Send the records that changed, and a heartbeat.

        Raises:
            OwnershipTakenError: another driver has the sweep.
            OSError: the storage failed.
        """
        check_owner(self._objects, self.place.token)
        with ThreadPoolExecutor(THREADS) as pool:
            for done in [pool.submit(self._send_group, g) for g in record_groups(self._paths)]:
                done.result()
        self._send_heartbeat()

    def _send_heartbeat(self, released: bool = False) -> None:
        content = json.dumps({"released": released}).encode()
        self._objects.put(_heartbeat(self.place.token), content)

    def _run(self) -> None:
        while True:
            try:
                self.send()
            except OwnershipTakenError as e:
                self._lost = True
                self._on_problem(str(e), fatal=True)
                return
            except OSError as e:
                log.warning("mirror: %s", _first_line(e))
            if self._closing.wait(PERIOD_S):
                return

    def _send_group(self, files: list[Path]) -> None:
        stamps = {f: _stamp(f) for f in files}
        changed = [f for f in files if self._sent.get(f) != stamps[f]]
        contents = {f: read_complete(f) for f in reversed(changed)}
        for file in changed:
            key = file.relative_to(self._paths.root).as_posix()
            self._objects.put(f"{RECORDS}/{key}", contents[file])
            self._sent[file] = stamps[file]


@contextmanager
def mirror_records(
    paths: SweepPaths, spec: SweepSpec, fence: Owner
) -> Iterator[RecordMirror | NullMirror]:
    """Mirror the records of a sweep while the block runs, if it has a mirror.

    Raises:
        UserError: the mirror cannot be reached, holds another sweep, or has another driver.
    """
    if spec.checkpoint.mirror is None:
        yield NullMirror()
        return
    address = expand_now("checkpoint.mirror", spec.checkpoint.mirror)
    place = MirrorLocation(address, spec.name, fence.token)
    objects = place.open()
    owner = {**this_process(), "token": fence.token, "sweep": read_state(paths).key}
    with objects.explained(files=False):
        _claim(objects, owner)
    with RecordMirror(place, objects, paths) as mirror:
        yield mirror


def check_mirror(spec: SweepSpec) -> list[str]:
    """Check that the mirror can be reached; returns the lines for `tune plan`.

    Raises:
        UserError: it cannot be reached.
    """
    if spec.checkpoint.mirror is None:
        return []
    objects = open_object_store(expand_now("checkpoint.mirror", spec.checkpoint.mirror))
    check_object_store(objects)
    return [f"mirror     {objects.address}, which can be listed"]


def _claim(objects: ObjectStore, owner: dict[str, Any]) -> None:
    text = objects.read(OWNER)
    held = None if text is None else json.loads(text)
    if held is not None and held["sweep"] != owner["sweep"]:
        raise UserError(
            f"{objects.address}: holds another sweep of this name; give this one another "
            "(tune run FILE --name NAME), or continue that one "
            f"(tune resume {objects.address})"
        )
    if held is not None and has_driver(objects):
        raise UserError(
            f"{objects.address}: driven by process {held['pid']} on {held['host']}; end it, or "
            f"wait until it has sent nothing for {STALE_S:.0f} seconds"
        )
    objects.put(OWNER, json.dumps(owner).encode())


def has_driver(objects: ObjectStore) -> bool:
    """Whether the driver that owns the mirror of a sweep is alive."""
    owner = objects.read(OWNER)
    if owner is None:
        return False
    held = json.loads(owner)
    key = _heartbeat(held["token"])
    heartbeat = json.loads(objects.read(key) or b"{}")

    def silent_s() -> float:
        return time.time() - (objects.modified_at(key) or 0.0)

    return is_driver_alive({**held, **heartbeat}, silent_s, STALE_S)


def wait_for_mirrors_driver(address: str, say: Callable[[str], None]) -> None:
    """Wait until the driver that owns a mirror sends a heartbeat, or counts as dead.

    Args:
        address: of the sweep in the mirror.
        say: gets a line if it takes a while.
    """
    objects = open_object_store(address)
    owner = objects.read(OWNER)
    key = _heartbeat(json.loads(owner or b'{"token": ""}')["token"])
    wait_for_heartbeat(
        f"{address}: a driver has it",
        lambda: has_driver(objects) and objects.read(OWNER) == owner,
        lambda: objects.modified_at(key),
        STALE_S,
        say,
    )


def _heartbeat(token: str) -> str:
    """Key of a driver's heartbeat. Only that driver writes it; `owner.json` changes hands."""
    return f"drivers/{token}.json"


def _stamp(file: Path) -> _Stamp:
    stat = file.stat()
    return stat.st_mtime_ns, stat.st_size, stat.st_ino


def _first_line(error: Exception) -> str:
    return redact(str(error).partition(";")[0].splitlines()[0])
