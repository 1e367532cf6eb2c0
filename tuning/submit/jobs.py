"""Hands a sweep to an engine, and notes its id there in the sweep's folder."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from results.own_program import module_command
from results.paths import SweepPaths
from results.storage.atomic import write_atomic
from results.sweep_folder.folder import sweep_argument
from results.sweep_folder.identity import is_signed, sign
from results.sweep_folder.lock import refuse_if_driven
from search_spaces.checksum import add_json_checksum, json_is_intact
from search_spaces.errors import UserError
from search_spaces.files import parse_json, read_regular
from tuning.submit.engine import ENGINES, Engine, Job, engine_class, make_engine
from tuning.submit.portable import set_options


@dataclass(frozen=True)
class JobNote:
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


def submit_job(job: Job, engine: Engine, name: str) -> str:
    """Queue a job that begins or continues a sweep or pipeline; returns its id.

    Args:
        job: what is to run.
        engine: with its name.

    Raises:
        UserError: a process or another job runs the sweep already, or the engine refuses.
    """
    paths = job.paths
    refuse_if_driven(paths.lock)
    if paths.job.exists():
        _refuse_if_it_runs(paths)
    job_id = engine.submit(job)
    note = json.dumps(asdict(JobNote(name, job_id, time.time(), engine.place)))
    text = json.dumps({"note": note, "signed": sign(note.encode())})
    write_atomic(paths.job, add_json_checksum(text).encode())
    return job_id


def _refuse_if_it_runs(paths: SweepPaths) -> None:
    try:
        note = own_note(paths)
        state = note.asked.state(note.id)
    except UserError as e:
        raise UserError(f"{e.problems[0]}; if its job has ended: rm {paths.job}") from e
    if not state.over:
        raise UserError(
            f"{paths.name}: {note.engine} job {note.id} has it and is {state.words}; "
            f"end that with: tune cancel {sweep_argument(paths)}"
        )


def run_command(file: Path, overrides: Sequence[str], paths: SweepPaths) -> list[str]:
    """The command that begins or continues what a file says, in a folder."""
    where = ["--or-resume", "--name", paths.name, "--storage", str(paths.storage.root)]
    return module_command("tuning", "run", str(file.absolute()), *where, *set_options(overrides))


def own_note(paths: SweepPaths) -> JobNote:
    """The note on the newest job of a sweep or pipeline, which this user submitted.

    Others may write into the folder, and the place in a note gets a token: so it is signed.

    Raises:
        UserError: there is none, it is damaged, of another user or of another version.
    """
    try:
        data = read_regular(paths.job)
        raw = parse_json(data)
        text, signed = str(raw["note"]), str(raw["signed"])
        if not json_is_intact(data):
            raise ValueError("does not match its checksum")
        if not is_signed(text.encode(), [signed]):
            raise UserError(f"{paths.root}: another user submitted it, and only that one may ask")
        note = JobNote(**parse_json(text))
    except FileNotFoundError as e:
        never = f"{paths.name}: was never submitted; end its session with: tune pause"
        raise UserError(never) from e
    except (OSError, ValueError, KeyError, TypeError) as e:
        raise UserError(f"{paths.job}: not readable ({e})") from e
    if note.engine not in ENGINES:
        raise UserError(f"{paths.job}: no such engine: {note.engine} (another version wrote it)")
    return note
