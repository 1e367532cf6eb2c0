"""Names the next command when the driver's process ends without a word of its own.

SIGKILL, a lack of memory and a second signal end it so. Ray does too: its C++ part ends the process
when the raylet has ended, or when its GCS has not answered for a minute.
"""

from __future__ import annotations

from results.own_program import AfterDeath
from results.sweep_folder.folder import sweep_argument
from results.tracking import Ending
from tuning.controller.events import SessionStart, SweepEvents


class DeathNotice(SweepEvents):
    """A small process that outlives the driver, and writes one line to its stderr."""

    def __init__(self) -> None:
        self._process: AfterDeath | None = None

    def session_started(self, start: SessionStart) -> None:
        """See `SweepEvents`."""
        name = sweep_argument(start.paths)
        line = (
            f"the driver of {start.paths.name} was killed, or ended by a second signal, or by Ray "
            f"after the loss of its cluster; continue with: tune resume {name}"
        )
        self._process = AfterDeath(["sh", "-c", 'echo "$0" >&2', line])

    def session_ended(self, ending: Ending | None) -> None:
        """See `SweepEvents`."""
        self.cancel()

    def cancel(self) -> None:
        """Write nothing: the driver ends with a word of its own."""
        if self._process is not None:
            self._process.cancel()
            self._process = None
