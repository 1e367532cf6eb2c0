"""Finds sweep folders, and keeps the history of their sessions in `state.json`."""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import shlex
import socket
import time
import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated

from pydantic import Field, TypeAdapter
from pydantic.dataclasses import dataclass as checked_dataclass

from results.paths import Storage, SweepPaths
from results.records.pipeline import PipelinePaths, pipelines_in
from results.storage.atomic import write_atomic
from results.storage.fencing import Fence
from results.sweep_folder.identity import identity, sign
from results.trial_paths import TrialPaths
from search_spaces.checksum import add_json_checksum, json_is_intact
from search_spaces.errors import DamagedRecordsError, UserError, afterwards, short_reason, suggest
from search_spaces.files import read_regular

Seconds = Annotated[float, Field(ge=0, le=1e11)]
"""A time in Unix seconds, or a difference of two: one that a calendar can show."""


@checked_dataclass(frozen=True)
class SweepState:
    """The content of `state.json`: the sweep's identity and the history of its sessions.

    Attributes:
        key: identifies the sweep, also after its folder is moved or renamed.
        started: Unix seconds of each session.
        spent: seconds of wall-clock of each session; None for one that runs or was killed.
        ended: why the sweep ended, one line; empty if it has not.
        signed: signatures (see `identity`) for the present `sweep.yaml` and the one before.
        commit: Git commit of the code in the newest session; empty if it is not known.
        by: user@host of who began it; empty if a version did that did not record it.
        folder: where its newest session ran, or where it was made; likewise.
    """

    key: str
    started: tuple[Seconds, ...]
    spent: tuple[Seconds | None, ...]
    ended: str = ""
    signed: tuple[str, ...] = ()
    commit: str = ""
    by: str = ""
    folder: str = ""


_STATE = TypeAdapter(SweepState)


def this_person() -> str:
    """The user of this process and the machine, as user@host."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # no name in the system's list, as in containers
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


def find_sweep(sweep: str, storage: str | None) -> SweepPaths:
    """The folder of a sweep, by name or by path.

    Args:
        sweep, storage: as on the command line.

    Raises:
        UserError: there is no such sweep; the message suggests the nearest name.
    """
    as_path = Path(sweep)
    if SweepPaths(as_path).is_sweep:
        return SweepPaths(as_path.resolve())
    root = resolve_storage(storage)
    paths = root.sweep(sweep)
    if paths.is_sweep and as_path.name == sweep:
        return paths
    pipeline, slash, stage = sweep.partition("/")
    if (found := PipelinePaths(root.root / pipeline)).is_pipeline:
        paths = found.sweep(stage)
        if slash and paths.is_sweep and Path(stage).name == stage:
            return paths
        names = [name for name, _ in named_sweeps(root) if name.startswith(f"{pipeline}/")]
        if not slash:
            known = (
                f"name a stage of it: {', '.join(names)}" if names else "no sweep of it has begun"
            )
            raise UserError(f"{pipeline} is a pipeline; {known}")
        hint = suggest(sweep, names) if names else "; none has begun"
        raise UserError(f"no sweep '{sweep}' of pipeline {pipeline}{hint}")
    names = [name for name, _ in named_sweeps(root)]
    hint = suggest(sweep, names) if names else ": it holds no sweep; start one with tune run FILE"
    raise UserError(f"no sweep '{sweep}' in {root.root}{hint}")


def named_sweeps(root: Storage) -> Iterator[tuple[str, SweepPaths]]:
    """The sweeps of a storage by name, then those of its pipelines' stages, as `stories/sft`."""
    yield from ((paths.name, paths) for paths in root.sweeps())
    for pipeline in pipelines_in(root):
        for paths in pipeline.stages.sweeps():
            if "@" not in paths.name:  # as the stage was before a change
                yield f"{pipeline.name}/{paths.name}", paths


def find_trial(paths: SweepPaths, trial: str) -> TrialPaths:
    """The files of a trial.

    Raises:
        UserError: there is no trial with this id.
    """
    ids = paths.trial_ids()
    if trial not in ids:
        if trial.isalnum() and paths.trial(trial).root.is_dir():
            raise DamagedRecordsError(f"{paths.trial(trial).record}: missing or not readable")
        has = f"it has {ids[0]} to {ids[-1]}" if ids else "it has none yet"
        raise UserError(f"{paths.name}: no trial '{trial}'; {has}")
    return paths.trial(trial)


def resolve_storage(storage: str | None) -> Storage:
    """The storage that a command uses: `--storage`, `$TUNE_STORAGE` or ./sweeps."""
    chosen = storage or os.environ.get("TUNE_STORAGE") or "./sweeps"
    return Storage(Path(chosen).expanduser().resolve())


def sweep_argument(paths: SweepPaths) -> str:
    """The SWEEP argument of a command: the name, or, quoted, the folder in another storage."""
    pipeline, storage = PipelinePaths(paths.storage.root.parent), resolve_storage(None)
    if pipeline.is_pipeline and pipeline.root.parent == storage.root:
        return f"{pipeline.name}/{paths.name}"
    return paths.name if paths.storage == storage else shlex.quote(str(paths.root))


def pipeline_argument(paths: PipelinePaths) -> str:
    """The argument of a command that means a pipeline: its name, or else its folder, quoted."""
    is_default = paths.root.parent == resolve_storage(None).root
    return paths.name if is_default else shlex.quote(str(paths.root))


def read_state(paths: SweepPaths) -> SweepState:
    """Read `state.json`.

    Raises:
        DamagedRecordsError: the file is missing or damaged.
    """
    try:
        data = read_regular(paths.state)
        if not json_is_intact(data):
            raise ValueError("does not match its checksum")
        state = _STATE.validate_json(data)
        if len(state.started) != len(state.spent):
            raise ValueError("started and spent are not of the same sessions")
        return state
    except (OSError, ValueError) as e:
        raise DamagedRecordsError(f"{paths.state}: not readable ({short_reason(e)})") from e


def write_state(paths: SweepPaths, state: SweepState) -> None:
    """Write `state.json` atomically."""
    write_atomic(paths.state, add_json_checksum(json.dumps(asdict(state), indent=1)).encode())


def sign_state(paths: SweepPaths, spec: bytes) -> None:
    """Sign `state.json` for a content of `sweep.yaml`, before it is written.

    The signature for the content before stays, so a driver that is killed in between stays the
    owner.
    """
    state = read_state(paths)
    signature = sign(identity(state.key, spec))
    write_state(paths, replace(state, signed=(signature, *state.signed[:1])))


def separate_copy(paths: SweepPaths) -> list[str]:
    """Give the copy of a trusted sweep's folder a key of its own, and note where the folder is.

    Otherwise both would be one sweep in MLflow. A folder that was moved keeps its key.

    Returns:
        One line that names the other folder, if there is one.
    """
    state, here = read_state(paths), os.path.realpath(paths.root)
    if state.folder == here:
        return []
    if not _is_also_in(state.folder, state.key, here):
        write_state(paths, replace(state, folder=here))
        return []
    key = uuid.uuid4().hex
    signed = (sign(identity(key, paths.spec.read_bytes())),)
    write_state(paths, replace(state, key=key, signed=signed, folder=here))
    return [f"{here} is a copy of {state.folder}: MLflow gets runs of its own for it"]


def _is_also_in(folder: str, key: str, here: str) -> bool:
    """Whether a sweep is in another folder too."""
    try:
        there = bool(folder) and read_state(SweepPaths(Path(folder))).key == key
        return there and not os.path.samefile(folder, here)
    except (UserError, OSError):
        return False


@dataclass
class SessionTime:
    """The wall-clock time of a session.

    Attributes:
        before: seconds of all earlier sessions.
        idle: whether it ran no trial, so that it does not count.
    """

    before: float
    idle: bool = False


@contextlib.contextmanager
def record_session_time(paths: SweepPaths, fence: Fence, commit: str = "") -> Iterator[SessionTime]:
    """Record the seconds of the session that the block runs, unless it finds nothing to do."""
    state = read_state(paths)
    known = _session_seconds(paths, state)
    start, session = time.monotonic(), SessionTime(sum(known))
    started = (*state.started, time.time())
    begun = replace(state, started=started, spent=(*known, None), ended="", commit=commit)
    write_state(paths, begun)

    def record() -> None:
        fence.check()
        spent = (*known, time.monotonic() - start)
        counts = (state.started, known) if session.idle else (started, spent)
        write_state(paths, replace(read_state(paths), started=counts[0], spent=counts[1]))

    with afterwards(record):
        yield session


def record_killed_session(paths: SweepPaths) -> None:
    """Record how long a killed session took, before a command changes records: by the last write.

    The caller owns the sweep. A damaged `state.json` stays as it is.
    """
    with contextlib.suppress(DamagedRecordsError):
        state = read_state(paths)
        if None in state.spent:
            write_state(paths, replace(state, spent=_session_seconds(paths, state)))


def record_end(paths: SweepPaths, reason: str) -> None:
    """Record why the sweep ended; the next session clears it."""
    write_state(paths, replace(read_state(paths), ended=reason))


def total_elapsed_s(paths: SweepPaths) -> float:
    """Seconds of wall-clock of all sessions of a sweep that no driver runs."""
    return sum(_session_seconds(paths, read_state(paths)))


def session_times(paths: SweepPaths) -> list[tuple[float, float]]:
    """Beginning and end of each session, in Unix seconds."""
    state = read_state(paths)
    seconds = _session_seconds(paths, state)
    return [(began, began + s) for began, s in zip(state.started, seconds, strict=True)]


def _session_seconds(paths: SweepPaths, state: SweepState) -> tuple[float, ...]:
    """Seconds of each session; a killed session lasted until its last write."""
    return tuple(
        s if s is not None else max(0.0, _last_write(paths) - began)
        for s, began in zip(state.spent, state.started, strict=True)
    )


def _last_write(paths: SweepPaths) -> float:
    """When a record or report was written last, in Unix seconds; not later than now."""
    files = paths.trials.glob("*/[!.]*.json*")  # temporary ones are renamed meanwhile
    return min(time.time(), max((f.stat().st_mtime for f in files), default=0.0))
