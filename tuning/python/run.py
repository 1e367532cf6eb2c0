"""`Run`: the handle of a session in the background."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING

from results.paths import SweepPaths
from search_spaces.errors import UserError
from tuning.controller.commands import pause_session, stop_trials
from tuning.controller.events import Observers, SweepEvents
from tuning.controller.sweep_dir.create import discard_empty_sweep
from tuning.watch.background import BackgroundSession
from tuning.watch.follow import Follower

if TYPE_CHECKING:
    import pandas as pd

_LAST_LINES, _CODES = 5, (0, 130)


class Run:
    """A session that runs in a process of its own, and goes on when this one ends.

    Args:
        paths: of the sweep.
        callbacks: are notified of events.
        address, insecure, accepted: see `BackgroundSession`.
        new: the folder was made for this session; it is removed if no trial can start.

    Raises:
        UserError: the session could not begin; its own words.
    """

    def __init__(
        self,
        paths: SweepPaths,
        callbacks: Iterable[SweepEvents],
        *,
        address: str | None = None,
        insecure: bool = False,
        accepted: bool = False,
        new: bool = False,
    ) -> None:
        self.paths, self._new = paths, new
        self._error: Exception | None = None
        follower = Follower(paths, Observers(callbacks))
        follower.begin()
        self._session = BackgroundSession(paths, address, insecure, accepted)
        self._thread = threading.Thread(target=self._follow, args=(follower,), daemon=True)
        self._thread.start()

    def _follow(self, follower: Follower) -> None:
        try:
            follower.follow(lambda: self._session.running)
        except Exception as e:  # noqa: BLE001 - `wait` raises it, in the caller's thread
            self._error = e

    @property
    def running(self) -> bool:
        """Whether the session runs."""
        return self._session.running

    @property
    def trials(self) -> pd.DataFrame:
        """One row per trial, best first, as they are now; columns as in `results.load`."""
        from results.analysis.dataframes import load as load_tables

        return load_tables(self.paths.root).trials

    def stop(self, trial: str | None = None) -> None:
        """End a trial, or all of them and the sweep, at the next report.

        Raises:
            UserError: there is no such trial, or it has ended.
        """
        stop_trials(self.paths, trial)

    def pause(self) -> None:
        """End the session; the trials keep their checkpoints, and `resume` continues them.

        Raises:
            UserError: the session has ended.
        """
        pause_session(self.paths)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the session ends.

        Args:
            timeout: seconds; None: without end.

        Returns:
            Whether it has ended.

        Raises:
            UserError: it ended by a mistake, or no trial has a value; its own words.
        """
        self._thread.join(timeout)
        if self._thread.is_alive():
            return False
        code = self._session.process.wait()
        if self._error is not None:
            raise self._error
        if code not in _CODES:
            self._raise(code)
        return True

    def finish(self) -> None:
        """Wait; an interrupt ends the session cleanly first."""
        try:
            self.wait()
        except KeyboardInterrupt:
            self._session.wait_for_driver()  # before that, a signal would kill it
            if self.running:
                self._session.process.terminate()
            self.wait()
            raise

    def _raise(self, code: int) -> None:
        said = self._session.output.strip().splitlines()[-_LAST_LINES:]
        if self._new and code == UserError.exit_code:
            discard_empty_sweep(self.paths)
            raise UserError(*said)
        raise UserError(*said, f"the session ended with exit code {code}: {self.paths.log}")
