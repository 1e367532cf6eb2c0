"""Engines: programs that queue jobs and run them on machines beyond this one."""

from __future__ import annotations

import re
import shutil
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module

from results.paths import SweepPaths
from search_spaces.errors import UserError
from search_spaces.loading.sweep_file import LoadedSweep

ENGINES = {
    "k8s": "tuning.submit.kubernetes:Kubernetes",
    "ray": "tuning.submit.ray_jobs:RayJobs",
    "slurm": "tuning.submit.slurm:Slurm",
}
"""Each has its class; `tune submit --to` takes the names."""

ENDS = "ends; checkpoints are kept"
"""What a job does after `Engine.cancel`."""
_ANSWER_S = 60.0


@dataclass(frozen=True)
class Job:
    """What an engine is to run.

    Attributes:
        sweeps: the sweep, or those of a pipeline; their `cluster` sections say which machines the
            job gets from an engine that has any to give.
        paths: the folder of the sweep or pipeline, which all machines of the job see.
        command: begins or continues that, and may be given again and again.
        options: what the engine is told besides, as `name=value`.
    """

    sweeps: Sequence[LoadedSweep]
    paths: SweepPaths
    command: Sequence[str]
    options: Sequence[str]


@dataclass(frozen=True)
class JobState:
    """What an engine says of a job.

    Attributes:
        words: the engine's, lower case, and why it waits or has ended.
        over: whether it has ended, and does not run again by itself.
    """

    words: str
    over: bool = False

    @classmethod
    def ended(cls, how: str = "") -> JobState:
        """That of a job that has ended."""
        return cls(f"ended ({how})" if how else "ended", over=True)


class Engine(ABC):
    """Runs a sweep's command in a job, again after a preemption.

    All methods raise a UserError of one line if the engine does not answer or refuses.

    Attributes:
        place: says which cluster it is, for an engine that may have several; noted with a job.
        shares_folder: whether its machines see the folder of the sweep that is noted here.
    """

    place: str = ""
    shares_folder: bool = True

    @abstractmethod
    def __init__(self, place: str | None = None) -> None: ...

    @abstractmethod
    def check(self, sweeps: Sequence[LoadedSweep], options: Sequence[str]) -> list[str]:
        """Check, before there is a folder, that it could run a job; returns remarks on that."""

    @abstractmethod
    def submit(self, job: Job) -> str:
        """Queue a job; returns its id, which `state` and `cancel` take."""

    @abstractmethod
    def state(self, job_id: str) -> JobState:
        """The state of a job."""

    @abstractmethod
    def cancel(self, job_id: str) -> str:
        """End a job, with time for its trials to save checkpoints; returns before that is done.

        Returns:
            What it does now, in words.
        """


def make_engine(name: str, place: str | None = None) -> Engine:
    """The engine with a name of `ENGINES`.

    Args:
        place: see `Engine`; None: the engine's default.

    Raises:
        UserError: it has no such place, or no default.
    """
    return engine_class(name)(place)


def engine_class(name: str) -> type[Engine]:
    """The class of an engine; its attributes tell what needs no answer."""
    module, _, symbol = ENGINES[name].partition(":")
    found: type[Engine] = getattr(import_module(module), symbol)
    return found


def ask(*command: str, needs: str, limit_s: float = _ANSWER_S) -> subprocess.CompletedProcess[str]:
    """Run a program of an engine.

    Args:
        needs: what to do if it is not installed.
        limit_s: seconds in which it must end.

    Raises:
        UserError: it is not installed, or does not answer.
    """
    if shutil.which(command[0]) is None:
        raise UserError(f"{command[0]}: no such program on this machine; {needs}")
    try:
        return subprocess.run(
            command, capture_output=True, errors="replace", timeout=limit_s, check=False
        )
    except subprocess.TimeoutExpired as e:
        raise UserError(f"{command[0]}: no answer in {limit_s:.0f} s") from e


def answer(*command: str, needs: str, limit_s: float = _ANSWER_S) -> str:
    """What a program of an engine prints.

    Raises:
        UserError: see `ask`; or it refuses.
    """
    done = ask(*command, needs=needs, limit_s=limit_s)
    if done.returncode:
        raise UserError(f"{command[0]}: {error_line(done.stderr) or done.returncode}")
    return done.stdout.strip()


def match_id(engine: str, pattern: str, job_id: str) -> re.Match[str]:
    """The parts of an id from a file, which goes onto a command line or into an address.

    Raises:
        UserError: it is none of this engine.
    """
    if (found := re.fullmatch(pattern, job_id)) is None:
        raise UserError(f"{engine}: no id of a job: {job_id}")
    return found


def error_line(said: str) -> str:
    """The errors that a program prints, in a line: the first two, and how many follow."""
    lines = [" ".join(line.split()) for line in said.splitlines() if line.strip()]
    more = f" (and {len(lines) - 2} lines more)" if len(lines) > 2 else ""
    return " ".join(lines[:2]) + more
