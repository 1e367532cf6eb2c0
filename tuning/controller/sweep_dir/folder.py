"""The sweep folder from the driver's side: made, found again, and its sessions accounted for."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import TypeAdapter, ValidationError

from results.paths import Storage, SweepPaths, TrialPaths
from results.storage.atomic import write_atomic
from results.storage.fencing import Fence
from search_spaces.checksum import add_json_checksum, add_yaml_checksum, json_is_intact
from search_spaces.errors import UserError, suggest
from search_spaces.loading.explain import rule
from search_spaces.loading.sweep_file import LoadedSweep, dump_sweep
from search_spaces.nested import show
from search_spaces.spec.sweep import SweepSpec
from trainables.registry import resolve
from trainables.user_code.loader import canonical
from tuning.search.auto_scheduler import frozen_as, with_scheduler

DEFAULT_STORAGE = "./sweeps"


@dataclass(frozen=True)
class SweepState:
    """`state.json`: one line of history per session, and the sweep's identity.

    Attributes:
        key: names the sweep for good, wherever its folder is moved.
        spent: seconds of wall-clock of each session; None for one that never said.
        ended: why the sweep is over, one line; empty while it is not.
    """

    key: str
    started: tuple[float, ...]
    spent: tuple[float | None, ...]
    ended: str = ""


def create_sweep(loaded: LoadedSweep, name: str | None, storage: str | None) -> SweepPaths:
    """Make the folder of a new sweep, with its resolved spec frozen in it.

    A name from the file gets a number when it is taken; a name asked for must be free.

    Raises:
        UserError: the name is taken or no name, or the storage cannot be written.
    """
    root = Storage(Path(storage or loaded.spec.storage).expanduser().resolve())
    base = loaded.spec.name if name is None else _valid(name)
    candidates = [base] if name else [base, *(f"{base}-{i}" for i in range(2, 10_000))]
    for candidate in candidates:
        paths = root.sweep(candidate)
        if _make(paths.root):
            named = _anywhere(loaded.spec).model_copy(update={"name": candidate})
            write_state(paths, SweepState(uuid.uuid4().hex, (), ()))
            header = f"# frozen by `tune run {loaded.path}`\n"
            header += "".join(f"# --set {o}\n" for o in loaded.overrides)
            header += f"{note}\n" if (note := frozen_as(named)) else ""
            text = header + dump_sweep(with_scheduler(named))
            write_atomic(paths.spec, add_yaml_checksum(text).encode())
            return paths
    raise UserError(
        f"--name {base}: {root.sweep(base).root} exists; "
        f"go on with it (tune resume {base}), or choose another name"
    )


def _valid(name: str) -> str:
    field = SweepSpec.model_fields["name"]
    try:
        return TypeAdapter[str](Annotated[str, field]).validate_python(name)
    except ValidationError as e:
        schema = SweepSpec.model_json_schema()
        expected = rule(schema["properties"]["name"], schema)
        raise UserError(f"--name: must be {expected}, got {show(name)}") from e


def _make(folder: Path) -> bool:
    """Make a folder; False when it is there."""
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        return False
    except OSError as e:
        raise UserError(
            f"storage {folder.parent}: cannot make a sweep's folder there ({e.strerror}); "
            "choose another with --storage DIR"
        ) from e
    return True


def discard_empty_sweep(paths: SweepPaths) -> None:
    """Remove the folder of a new sweep that never got to its first trial."""
    if not paths.trials.exists():
        shutil.rmtree(paths.root)
        with contextlib.suppress(OSError):  # holds other sweeps
            paths.root.parent.rmdir()


def _anywhere(spec: SweepSpec) -> SweepSpec:
    """The spec with relative paths made absolute: workers run, and resumes start, elsewhere."""
    model = resolve(spec.trainable).Config
    update: dict[str, Any] = {
        "fixed": model.resolve_paths(spec.fixed, Path.cwd()),
        "trainable": canonical(spec.trainable),
    }
    named = [_absolute(sweep) for sweep in spec.search.warm_start]
    update["search"] = spec.search.model_copy(update={"warm_start": named})
    return spec.model_copy(update=update)


def _absolute(sweep: str) -> str:
    return str(Path(sweep).resolve()) if SweepPaths(Path(sweep)).is_sweep else sweep


def find_sweep(sweep: str, storage: str | None) -> SweepPaths:
    """The folder of a sweep, by name or by path.

    Raises:
        UserError: there is none; the nearest name is suggested.
    """
    as_path = Path(sweep)
    if SweepPaths(as_path).is_sweep:
        return SweepPaths(as_path.resolve())
    root = resolve_storage(storage)
    paths = root.sweep(sweep)
    if paths.is_sweep and as_path.name == sweep:
        return paths
    names = [p.name for p in root.sweeps()]
    hint = suggest(sweep, names) if names else ": it holds no sweep; start one with tune run FILE"
    raise UserError(f"no sweep '{sweep}' in {root.root}{hint}")


def find_trial(paths: SweepPaths, trial: str) -> TrialPaths:
    """The files of a trial.

    Raises:
        UserError: there is none of this id.
    """
    ids = paths.trial_ids()
    if trial not in ids:
        has = f"it has {ids[0]} to {ids[-1]}" if ids else "it has none yet"
        raise UserError(f"{paths.name}: no trial '{trial}'; {has}")
    return paths.trial(trial)


def resolve_storage(storage: str | None) -> Storage:
    """The storage a command reads: `--storage`, `$TUNE_STORAGE` or ./sweeps."""
    chosen = storage or os.environ.get("TUNE_STORAGE") or DEFAULT_STORAGE
    return Storage(Path(chosen).expanduser().resolve())


def sweep_argument(paths: SweepPaths) -> str:
    """How to name a sweep on the command line here: by name, or by folder if it is elsewhere."""
    return paths.name if paths.root.parent == resolve_storage(None).root else str(paths.root)


def read_state(paths: SweepPaths) -> SweepState:
    """The sweep's identity and history.

    Raises:
        UserError: the file is missing or damaged.
    """
    try:
        data = paths.state.read_bytes()
        raw = json.loads(data)
        if not json_is_intact(data):
            raise ValueError("does not match its checksum")
        started, spent = tuple(raw["started"]), tuple(raw["spent"])
        return SweepState(raw["key"], started, spent, raw.get("ended", ""))
    except (OSError, ValueError, KeyError, TypeError) as e:
        raise UserError(f"{paths.state}: not readable ({e})") from e


def write_state(paths: SweepPaths, state: SweepState) -> None:
    """Write `state.json` atomically."""
    write_atomic(paths.state, add_json_checksum(json.dumps(asdict(state), indent=1)).encode())


@contextlib.contextmanager
def record_session_time(paths: SweepPaths, fence: Fence) -> Iterator[float]:
    """Count the seconds of a session; gives those of the sessions before."""
    state = read_state(paths)
    known = _spent(paths, state)
    start, before = time.monotonic(), sum(known)
    write_state(paths, SweepState(state.key, (*state.started, time.time()), (*known, None)))
    try:
        yield before
    finally:
        fence.check()
        spent = (*known, time.monotonic() - start)
        write_state(paths, replace(read_state(paths), spent=spent))


def record_end(paths: SweepPaths, why: str) -> None:
    """Write down why the sweep is over, until its next session."""
    write_state(paths, replace(read_state(paths), ended=why))


def total_elapsed_s(paths: SweepPaths) -> float:
    """Seconds of wall-clock of all sessions, of a sweep that nobody drives."""
    return sum(_spent(paths, read_state(paths)))


def _spent(paths: SweepPaths, state: SweepState) -> tuple[float, ...]:
    return tuple(
        s if s is not None else max(0.0, _last_report(paths) - began)
        for s, began in zip(state.spent, state.started, strict=True)
    )


def _last_report(paths: SweepPaths) -> float:
    """When the sweep was last heard of, in Unix seconds: a killed session could not say."""
    files = list(paths.trials.glob("*/*.json*"))
    return max((f.stat().st_mtime for f in files), default=0.0)
