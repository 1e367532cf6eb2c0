"""`tune pause` and `tune stop` of a whole pipeline: files in its `inbox`, as those of a sweep."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Self

from results.paths import SweepPaths
from results.records.pipeline import PipelinePaths
from results.sweep_folder.folder import pipeline_argument
from results.sweep_folder.lock import current_driver
from search_spaces.errors import UserError
from tuning.controller.commands import POLL_S, pending_commands, send


def pause_pipeline(paths: PipelinePaths) -> str:
    """End the session of a pipeline; trials keep their checkpoints. Returns the effect in words.

    Raises:
        UserError: no process runs it.
    """
    owner = _driver(paths, "pause")
    send(_inbox(paths), "pause")
    return f"{owner} pauses now; continue with: tune resume {pipeline_argument(paths)}"


def stop_pipeline(paths: PipelinePaths) -> str:
    """Stop the sweeps that run, and begin no other stage. Returns the effect in words.

    Raises:
        UserError: no process runs it.
    """
    owner = _driver(paths, "stop")
    send(_inbox(paths), "stop")
    return (
        f"{owner} stops the trials of the stages that run, which are then complete, and ends; "
        f"run the other stages with: tune resume {pipeline_argument(paths)}"
    )


def _driver(paths: PipelinePaths, what: str) -> str:
    owner = current_driver(paths.lock)
    if owner is None:
        raise UserError(
            f"{paths.name}: no process runs this pipeline, so there is nothing to {what}; "
            f"continue with: tune resume {pipeline_argument(paths)}"
        )
    return owner


def _inbox(paths: PipelinePaths) -> SweepPaths:
    """The files of commands have the names and the content of those of a sweep."""
    return SweepPaths(paths.root)


class Commands:
    """Carries out, in a thread, the commands to a pipeline that this process runs.

    A pause acts as Ctrl-C does: it comes to the main thread as a SIGINT.

    Attributes:
        stopped: whether no other stage is to begin.
    """

    def __init__(self, paths: PipelinePaths) -> None:
        self._paths, self.stopped = paths, False
        self._running: set[str] = set()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="commands", daemon=True)

    def __enter__(self) -> Self:
        for command in pending_commands(_inbox(self._paths)):  # of an earlier session
            _inbox(self._paths).command(command.id).unlink(missing_ok=True)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()

    @contextmanager
    def during(self, name: str) -> Iterator[None]:
        """A stage runs in this block."""
        self.add(name)
        try:
            yield
        finally:
            self.remove(name)

    def add(self, name: str) -> None:
        """A stage runs from now on."""
        self._running.add(name)

    def remove(self, name: str) -> None:
        """A stage has ended."""
        self._running.discard(name)

    def _watch(self) -> None:
        told: set[str] = set()
        while not self._ended.wait(POLL_S):
            with suppress(OSError):  # storage that fails for a moment
                self._carry_out(told)

    def _carry_out(self, told: set[str]) -> None:
        for command in pending_commands(_inbox(self._paths)):
            self.stopped = self.stopped or command.do == "stop"
            _inbox(self._paths).command(command.id).unlink(missing_ok=True)
            if command.do == "pause":
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        for name in {*self._running} - told if self.stopped else ():
            if current_driver((sweep := self._paths.sweep(name)).lock):
                send(sweep, "stop")
                told.add(name)
