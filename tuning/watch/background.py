"""Runs a session in the background, in a session of processes of its own: it survives a logout."""

from __future__ import annotations

import time
from collections.abc import Sequence

from results.own_program import module_command, start
from results.paths import SweepPaths
from results.records.pipeline import PipelinePaths
from results.storage.atomic import open_private
from results.sweep_folder.lock import current_driver

_POLL_S = 0.1


class BackgroundSession:
    """A `tune resume` of a sweep or pipeline in another process; its output goes to `driver.log`.

    Args:
        paths: of the sweep, or of the pipeline.
        address, insecure, accept_damage: see `tuning.api.resume`.
        more: options of `tune resume`.

    Attributes:
        process: the driver's.
    """

    def __init__(
        self,
        paths: SweepPaths | PipelinePaths,
        address: str | None = None,
        insecure: bool = False,
        accept_damage: bool = False,
        more: Sequence[str] = (),
    ) -> None:
        options = [*(["--address", address] if address else []), *["--insecure"] * insecure]
        options += [*["--accept-damage"] * accept_damage, *more]
        self._paths = paths
        with open(paths.log, "ab", opener=open_private) as log:
            self._start = log.tell()
            self.process = start(module_command("tuning", "resume", str(paths.root), *options), log)

    @property
    def running(self) -> bool:
        """Whether the process runs."""
        return self.process.poll() is None

    def wait_for_driver(self) -> str | None:
        """Wait until it drives the sweep; returns the driver in words, None if it ended before."""
        while not (driver := current_driver(self._paths.lock)) and self.running:
            time.sleep(_POLL_S)
        return driver

    @property
    def output(self) -> str:
        """What it has printed."""
        return self._paths.log.read_bytes()[self._start :].decode(errors="replace")
