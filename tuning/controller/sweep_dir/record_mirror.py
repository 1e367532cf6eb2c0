"""A sweep's records in object storage, a little behind the folder: what a new machine starts from.

A thread of the driver sends what has changed. Who drives the sweep stands in the storage too, so
that a machine that was cut off cannot go on beside the one that took over.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from results.checkpoints.trial_mirror import (
    OWNER,
    REPORTS,
    MirrorLocation,
    OwnershipTakenError,
    check_owner,
)
from results.paths import SweepPaths
from results.storage.fencing import Owner
from results.storage.object_store import (
    ObjectStore,
    check_object_store,
    explain_storage_error,
    open_object_store,
)
from search_spaces.errors import UserError
from search_spaces.redaction import redact
from search_spaces.spec.sweep import SweepSpec
from tuning.controller.sweep_dir.folder import read_state
from tuning.controller.sweep_dir.lock import is_driver_alive, this_process

if TYPE_CHECKING:
    from tuning.controller.sweep import SweepController

log = logging.getLogger(__name__)

PERIOD_S = 30.0
STALE_S = 4 * PERIOD_S
RECORDS = "records"
_AT_ONCE = 8

Stamp = tuple[int, ...]


class NullMirror:
    """For a sweep that is in its folder only."""

    def watch(self, run: SweepController) -> MirrorLocation | None:
        """Nowhere."""
        return None


class RecordMirror:
    """Keeps the records of a sweep in its place in object storage."""

    def __init__(self, place: MirrorLocation, objects: ObjectStore, paths: SweepPaths) -> None:
        self._place, self._objects, self._paths = place, objects, paths
        self._sent: dict[Path, Stamp] = {}
        self._over = threading.Event()
        self._lost = False
        self._complain: Callable[[str, bool], None] = lambda said, lost: None
        self._thread = threading.Thread(target=self._run, name="mirror", daemon=True)

    def begin(self) -> None:
        """Send from now on, until `close`."""
        self._thread.start()

    def watch(self, run: SweepController) -> MirrorLocation | None:
        """Tell a sweep from now on what goes wrong; gives where its checkpoints go."""

        def complain(said: str, lost: bool) -> None:
            if lost:
                run.give_up(said)
            elif not run.problem:
                run.problem = said

        self._complain = complain
        return self._place

    def close(self) -> None:
        """Send what is left, and say that nobody drives the sweep now."""
        self._over.set()
        self._thread.join()
        if self._lost:
            return
        try:
            self.send()
            if not self._paths.trials.exists():  # it came to nothing: its name is free again
                open_object_store(self._place.address).remove(self._place.sweep, recursive=True)
                return
            self._beat(released=True)
        except (OSError, OwnershipTakenError) as e:
            self._complain(f"not all records are in {self._objects.address} ({_line(e)})", False)

    def send(self) -> None:
        """Send the records that changed.

        Raises:
            OwnershipTakenError: another driver has the sweep.
            OSError: the storage failed.
        """
        check_owner(self._objects, self._place.token)
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            for done in [pool.submit(self._send_group, g) for g in self._groups()]:
                done.result()
        self._beat()

    def _beat(self, released: bool = False) -> None:
        said = json.dumps({"released": released}).encode()
        self._objects.put(_heartbeat(self._place.token), said)

    def _run(self) -> None:
        while True:
            try:
                self.send()
            except OwnershipTakenError as e:
                self._lost = True
                self._complain(str(e), True)
                return
            except OSError as e:
                log.warning("mirror: %s", _line(e))
            if self._over.wait(PERIOD_S):
                return

    def _groups(self) -> Iterator[list[Path]]:
        """Files that belong together, in the order in which they are sent."""
        p = self._paths
        common = p.spec, p.evidence, p.study, p.state, *p.history.rglob("*")
        yield [f for f in common if f.is_file()]
        for folder in p.trials.iterdir() if p.trials.is_dir() else ():
            notes = folder.glob("logs/attempt_*/environment.json")
            # the record last: a trial that is finished there has all its reports there
            yield [f for f in (*notes, folder / REPORTS, folder / "trial.json") if f.is_file()]

    def _send_group(self, files: list[Path]) -> None:
        stamps = {f: _stamp(f) for f in files}
        changed = [f for f in files if self._sent.get(f) != stamps[f]]
        # read in the other order: reports are written before the record that ends a trial
        contents = {f: _whole_lines(f) for f in reversed(changed)}
        for file in changed:
            key = file.relative_to(self._paths.root).as_posix()
            self._objects.put(f"{RECORDS}/{key}", contents[file])
            self._sent[file] = stamps[file]


@contextmanager
def mirror_records(
    paths: SweepPaths, spec: SweepSpec, fence: Owner
) -> Iterator[RecordMirror | NullMirror]:
    """Mirror a sweep while the block runs, if its file says where.

    Raises:
        UserError: the place cannot be reached, or holds another sweep, or another driver has it.
    """
    if spec.checkpoint.mirror is None:
        yield NullMirror()
        return
    place = MirrorLocation(str(spec.checkpoint.mirror), spec.name, fence.token)
    objects = place.open()
    owner = {**this_process(), "token": fence.token, "sweep": read_state(paths).key}
    try:
        _claim(objects, owner)
    except OSError as e:
        raise explain_storage_error(objects, e) from e
    mirror = RecordMirror(place, objects, paths)
    mirror.begin()
    try:
        yield mirror
    finally:
        mirror.close()


def check_mirror(spec: SweepSpec) -> list[str]:
    """What a plan says of the mirror.

    Raises:
        UserError: it cannot be reached, and why.
    """
    if spec.checkpoint.mirror is None:
        return []
    objects = open_object_store(spec.checkpoint.mirror)
    check_object_store(objects)
    return [f"mirror     {objects.address}, which can be listed"]


def _claim(objects: ObjectStore, owner: dict[str, Any]) -> None:
    text = objects.read(OWNER)
    held = None if text is None else json.loads(text)
    if held is not None and held["sweep"] != owner["sweep"]:
        raise UserError(
            f"{objects.address}: holds another sweep of this name; give this one another "
            "(tune run FILE --name NAME), or go on with that one "
            f"(tune resume {objects.address})"
        )
    if held is not None and _drives(objects, held):
        raise UserError(
            f"{objects.address}: driven by process {held['pid']} on {held['host']}; end it, or "
            f"wait until nothing was heard of it for {STALE_S:.0f} seconds"
        )
    objects.put(OWNER, json.dumps(owner).encode())


def _drives(objects: ObjectStore, held: dict[str, Any]) -> bool:
    """Whether the driver that has the mirror still lives."""
    beat = _heartbeat(held["token"])
    said = json.loads(objects.read(beat) or b"{}")
    return is_driver_alive({**held, **said}, lambda: objects.modified_at(beat) or 0.0, STALE_S)


def _heartbeat(token: str) -> str:
    """Written by one driver only, unlike `owner.json`, which is taken from it."""
    return f"drivers/{token}.json"


def _stamp(file: Path) -> Stamp:
    at = file.stat()
    return at.st_mtime_ns, at.st_size, at.st_ino


def _whole_lines(file: Path) -> bytes:
    """A file's content; of one that grows, the lines that are complete."""
    data = file.read_bytes()
    return data[: data.rfind(b"\n") + 1] if file.suffix in (".jsonl", ".journal") else data


def _line(error: Exception) -> str:
    return redact(str(error).partition(";")[0].splitlines()[0])
