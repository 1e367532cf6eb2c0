"""`tune pause` and `tune stop` of a whole pipeline: files in its `inbox`, as those of a sweep."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Literal, Self

from results.paths import SweepPaths
from results.records.pipeline import PipelinePaths
from results.sweep_folder.folder import pipeline_argument
from results.sweep_folder.lock import current_driver
from search_spaces.errors import UserError
from tuning.controller.commands import POLL_S, pending_commands, send


def command_pipeline(paths: PipelinePaths, do: Literal["pause", "stop"]) -> str:
    """Pause or stop a pipeline that runs; returns the effect in words.

    A pause ends its session; trials keep their checkpoints. A stop ends the sweeps that run, and
    no other stage begins.

    Raises:
        UserError: no process runs it.
    """
    resume = f"tune resume {pipeline_argument(paths)}"
    if (owner := current_driver(paths.lock)) is None:
        raise UserError(
            f"{paths.name}: no process runs this pipeline, so there is nothing to {do}; "
            f"continue with: {resume}"
        )
    send(SweepPaths(paths.root), do)
    if do == "pause":
        return f"{owner} pauses now; continue with: {resume}"
    return (
        f"{owner} stops the trials of the stages that run, which are then complete, and ends; "
        f"run the other stages with: {resume}"
    )


def remove_commands(paths: PipelinePaths) -> None:
    """Remove the commands to an earlier session, which ended before it read them."""
    inbox = SweepPaths(paths.root)
    for command in pending_commands(inbox):
        inbox.command(command.id).unlink(missing_ok=True)


class PipelineCommands:
    """Carries out, in a thread, the commands to a pipeline that this process runs.

    A pause acts as Ctrl-C does: it comes to the main thread as a SIGINT.

    Attributes:
        stopped: whether no other stage is to begin.
        running: the stages that run now.
    """

    def __init__(self, paths: PipelinePaths) -> None:
        self._paths, self._inbox = paths, SweepPaths(paths.root)
        self.stopped, self.running = False, set[str]()
        self._sent: set[str] = set()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="commands", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()

    @contextmanager
    def running_stage(self, name: str) -> Iterator[None]:
        """A stage runs in this block."""
        self.running.add(name)
        try:
            yield
        finally:
            self.running.discard(name)

    def _watch(self) -> None:
        while not self._ended.wait(POLL_S):
            with suppress(OSError, UserError):  # storage that fails for a moment
                for command in pending_commands(self._inbox):
                    self.stopped = self.stopped or command.do == "stop"
                    self._inbox.command(command.id).unlink(missing_ok=True)
                    if command.do == "pause":
                        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
                for name in {*self.running} - self._sent if self.stopped else ():
                    if current_driver((sweep := self._paths.sweep(name)).lock):
                        send(sweep, "stop")
                        self._sent.add(name)
