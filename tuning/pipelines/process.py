"""A stage that runs in a process of its own, beside another one."""

from __future__ import annotations

import json
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from results.models.ref import model_refs
from search_spaces.errors import UserError
from tuning.pipelines.base import StageContext, StageOutput, StageStopped

_END_S, _LINES_S = 60.0, 5.0
"""A session ends in the first after SIGTERM; see `tuning.controller.sweep_dir.watchdog`."""


class StageProcess:
    """Runs one stage; it ends with this process at the latest.

    Args:
        command: of the process. It gets the pipeline's folder, the stage's name, the address of the
            Ray cluster (empty: none), and the number of a file for its answer.
        context: of the stage; `notify` shows each line that it prints, with the stage's name.
        name: of the stage.
        on_end: called in a thread when it has ended.
    """

    def __init__(
        self, command: Sequence[str], context: StageContext, name: str, on_end: Callable[[], None]
    ) -> None:
        self._name, self._notify = name, context.notify
        # a pipe would hold up a process whose answer has more than 64 KiB
        self._answer = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed with its outcome
        number, self._started = self._answer.fileno(), time.monotonic()
        self._process = subprocess.Popen(
            [*command, str(context.paths.root), name, context.address or "", str(number)],
            pass_fds=[number],
            stdin=subprocess.PIPE,  # its end is that of this process
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,  # Ctrl-C comes to this process, which passes it on
        )
        self._lines = threading.Thread(target=self._show, daemon=True)
        self._lines.start()
        threading.Thread(target=self._wait_for_end, args=(on_end,), daemon=True).start()

    @property
    def is_alive(self) -> bool:
        """Whether it runs."""
        return self._process.poll() is None

    @property
    def seconds(self) -> float:
        """Since its start."""
        return time.monotonic() - self._started

    def terminate(self) -> None:
        """Ask it to end: trials keep their checkpoints."""
        self._process.terminate()

    def wait(self) -> None:
        """Wait until it has ended; kill it if it does not."""
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()

    def outcome(self) -> StageOutput | UserError | StageStopped:
        """What the stage put out, or why it has not, once the process has ended."""
        code, answer = self._process.wait(), dict[str, Any]()
        self._lines.join(_LINES_S)  # what it has left behind may hold the other end
        assert self._process.stdin is not None, "see __init__"
        self._process.stdin.close()
        with self._answer as file, suppress(ValueError):  # killed while it wrote
            file.seek(0)
            answer = json.load(file)
        if output := answer.get("output"):
            return StageOutput(output["result"], model_refs(output["models"]))
        if problems := answer.get("problems"):
            return UserError(*problems)
        killed = f"the process of stage {self._name} ended with code {code}"
        return StageStopped(answer.get("stopped", killed), answer.get("code", 1))

    def _wait_for_end(self, on_end: Callable[[], None]) -> None:
        self._process.wait()
        on_end()

    def _show(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                self._notify(f"{self._name} | {line.rstrip()}")
