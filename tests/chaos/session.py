"""One process of the program in a folder, for the rows that end it in unusual ways."""

from __future__ import annotations

import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from results.paths import SweepPaths
from results.sweep_folder.lock import current_driver
from tests.chaos.cluster import ENV, processes_with

LONGEST_S = 600.0
MARK = "TUNE_CHAOS_SESSION"


class Session:
    """`tune` with a Ray cluster of its own.

    Attributes:
        process: its process.
        sweep: folder of its sweep, if it has the default storage.
    """

    def __init__(
        self,
        folder: Path,
        *args: str,
        env: Mapping[str, str] | None = None,
        wrapper: Sequence[str] = (),
        **streams: int,
    ) -> None:
        self.folder, self.mark = folder, uuid.uuid4().hex
        self._out = folder / f"{self.mark}.log"
        with self._out.open("w") as out:
            self.process = subprocess.Popen(
                [*wrapper, sys.executable, "-m", "tuning", *args],
                cwd=folder,
                env={**ENV, MARK: self.mark, **(env or {})},
                **{"stdout": out, "stderr": out, **streams},
            )

    @property
    def said(self) -> str:
        """What it has printed."""
        return self._out.read_text()

    def end(self) -> int:
        """Wait for its end; returns the exit code. One that does not end is killed."""
        try:
            return self.process.wait(LONGEST_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()

    def until(self, reports: Path) -> None:
        """Wait until a file is there and not empty, or the process has ended."""
        while self.process.poll() is None and not (reports.exists() and reports.stat().st_size):
            time.sleep(0.05)


def problems_of(session: Session, when: str, codes: Sequence[int]) -> Iterator[str]:
    """Wait for the end of a session; what is wrong with it, one line each.

    Args:
        when: the fault, for messages.
        codes: exit codes that are right.
    """
    code = session.end()
    if code not in codes:
        yield f"{when}: exit code {code}: {session.said[-500:]!r}"
    if "Traceback" in session.said:
        yield f"{when}: a traceback: {session.said[-500:]!r}"
    for folder in (session.folder / "sweeps").glob("*/"):
        if driver := current_driver(SweepPaths(folder).lock):
            yield f"{when}: {folder.name} is still driven by {driver}"
    yield from (f"{when}: {left} is left" for left in processes_with(MARK, session.mark))
