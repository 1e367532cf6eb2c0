"""Hands a sweep to an engine, and notes its id there in the sweep's folder."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from results.paths import SweepPaths
from results.storage.atomic import write_atomic
from search_spaces.checksum import add_json_checksum, json_is_intact
from search_spaces.errors import UserError
from search_spaces.files import parse_json, read_regular
from search_spaces.loading.sweep_file import LoadedSweep
from tuning.controller.sweep_dir.folder import sweep_argument
from tuning.controller.sweep_dir.lock import refuse_if_driven
from tuning.controller.sweep_dir.trust import is_trusted
from tuning.submit.engine import ENGINES, Engine, Job, engine_class, make_engine


@dataclass(frozen=True)
class Note:
    """The content of `job.json`.

    Attributes:
        engine: a name of `ENGINES`.
        id: of the job, given by the engine.
        submitted: Unix seconds.
        place: see `Engine`.
    """

    engine: str
    id: str
    submitted: float
    place: str = ""

    @property
    def asked(self) -> Engine:
        """The engine."""
        return make_engine(self.engine, self.place)

    @property
    def shares_folder(self) -> bool:
        """Whether the engine's machines see the folder with this note."""
        return engine_class(self.engine).shares_folder


def submit_sweep(
    loaded: LoadedSweep,
    paths: SweepPaths,
    engine: Engine,
    name: str,
    options: Sequence[str] = (),
) -> str:
    """Queue a job that begins or continues a sweep; returns its id.

    Args:
        paths: the folder of the sweep.
        engine: with its name.
        options: what the engine is told besides, as `name=value`.

    Raises:
        UserError: a process or another job runs the sweep already, or the engine refuses.
    """
    refuse_if_driven(paths.lock)
    if (note := read_note(paths)) is not None:
        _refuse_if_it_runs(note, paths)
    job_id = engine.submit(Job(loaded, paths, run_command(loaded, paths), options))
    text = json.dumps(asdict(Note(name, job_id, time.time(), engine.place)))
    write_atomic(paths.job, add_json_checksum(text).encode())
    return job_id


def _refuse_if_it_runs(note: Note, paths: SweepPaths) -> None:
    try:
        state = note.asked.state(note.id)
    except UserError as e:
        gone = f"{note.engine} job {note.id} may still have it; if that is gone: rm {paths.job}"
        raise UserError(f"{e.problems[0]}; {gone}") from e
    if not state.over:
        raise UserError(
            f"{paths.name}: {note.engine} job {note.id} has it and is {state.words}; "
            f"end that with: tune cancel {sweep_argument(paths)}"
        )


def run_command(loaded: LoadedSweep, paths: SweepPaths) -> list[str]:
    """The command that begins or continues the sweep in a folder."""
    where = ["--name", paths.name, "--storage", str(paths.storage.root)]
    given = [word for change in loaded.overrides for word in ("--set", change)]
    file = str(Path(loaded.path).absolute())
    return [sys.executable, "-m", "tuning", "run", file, "--or-resume", *where, *given]


def read_note(paths: SweepPaths) -> Note | None:
    """The note on a sweep's newest job; None: it was never submitted.

    Raises:
        UserError: it is damaged, or of another version.
    """
    try:
        data = read_regular(paths.job)
        raw = parse_json(data)
        if not json_is_intact(data):
            raise ValueError("does not match its checksum")
        place = str(raw.get("place", ""))
        note = Note(str(raw["engine"]), str(raw["id"]), float(raw["submitted"]), place)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as e:
        raise UserError(f"{paths.job}: not readable ({e})") from e
    if note.engine not in ENGINES:
        raise UserError(f"{paths.job}: no such engine: {note.engine} (another version wrote it)")
    return note


def own_note(paths: SweepPaths) -> Note:
    """The note on the job of a sweep that this user made.

    Raises:
        UserError: there is none, or another user made the folder: its id may mean any job.
    """
    if (note := read_note(paths)) is None:
        raise UserError(f"{paths.name}: was never submitted; end its session with: tune pause")
    if not is_trusted(paths):
        raise UserError(f"{paths.root}: another user made it, so only that one asks for its job")
    return note


def submitted(sweeps: Iterator[tuple[str, SweepPaths]]) -> Iterator[tuple[str, SweepPaths]]:
    """Those of the sweeps that were submitted."""
    yield from ((name, paths) for name, paths in sweeps if paths.job.exists())
