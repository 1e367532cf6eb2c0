"""Engines: programs that queue jobs and run them on machines beyond this one."""

from __future__ import annotations

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
    "slurm": "tuning.submit.slurm:Slurm",
}
"""Each has its class; `tune submit --to` takes the names."""

_ANSWER_S = 60.0


@dataclass(frozen=True)
class Job:
    """What an engine is to run.

    Attributes:
        loaded: the sweep file; its `cluster` section says which machines the job gets.
        paths: the sweep's folder, which all machines of the job see.
        command: begins or continues the sweep, and may be given again and again.
        options: what the engine is told besides, as `name=value`.
    """

    loaded: LoadedSweep
    paths: SweepPaths
    command: Sequence[str]
    options: Sequence[str]


class Engine(ABC):
    """Runs a sweep's command in a job, again after a preemption.

    All methods raise a UserError of one line if the engine does not answer or refuses.
    """

    @abstractmethod
    def submit(self, job: Job) -> str:
        """Queue a job; returns its id, which `state` and `cancel` take."""

    @abstractmethod
    def state(self, job_id: str) -> str | None:
        """The state of a job in the engine's words, lower case; None: it has ended."""

    @abstractmethod
    def cancel(self, job_id: str) -> None:
        """End a job, with time for its trials to save checkpoints; returns before that is done."""


def make_engine(name: str) -> Engine:
    """The engine with a name of `ENGINES`."""
    module, _, symbol = ENGINES[name].partition(":")
    engine: Engine = getattr(import_module(module), symbol)()
    return engine


def ask(*command: str, needs: str) -> subprocess.CompletedProcess[str]:
    """Run a program of an engine.

    Args:
        needs: what to do if it is not installed.

    Raises:
        UserError: it is not installed, or does not answer.
    """
    if shutil.which(command[0]) is None:
        raise UserError(f"{command[0]}: no such program on this machine; {needs}")
    try:
        return subprocess.run(
            command, capture_output=True, text=True, timeout=_ANSWER_S, check=False
        )
    except subprocess.TimeoutExpired as e:
        raise UserError(f"{command[0]}: no answer in {_ANSWER_S:.0f} s") from e


def answer(*command: str, needs: str) -> str:
    """What a program of an engine prints.

    Raises:
        UserError: see `ask`; or it refuses.
    """
    done = ask(*command, needs=needs)
    if done.returncode:
        raise UserError(f"{command[0]}: {' '.join(done.stderr.split()) or done.returncode}")
    return done.stdout.strip()
