"""`ask` and `tell` of `Sweep`, whose work is in `ask_tell`."""

from __future__ import annotations

import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, overload

if TYPE_CHECKING:
    from results.paths import SweepPaths
    from search_spaces.spec.sweep import SweepSpec
    from tuning.python.ask_tell import AskTell, Trial


class Asking(ABC):
    """A sweep whose trials the caller runs."""

    _asked: AskTell | None = None
    _opening = threading.RLock()

    @abstractmethod
    def _created(self) -> tuple[SweepPaths, SweepSpec]:
        """Its folder, which is made if it is not there, and what it says."""

    @overload
    def ask(self) -> Trial | None: ...

    @overload
    def ask(self, count: int) -> list[Trial]: ...

    def ask(self, count: int | None = None) -> Trial | list[Trial] | None:
        """The next trial, for a program that runs trials itself; see `tell`.

        The first call creates the folder if the sweep is new, and owns it until the sweep is
        finished, `close` is called or the process ends. Trials that a process before did not finish
        come first. Trackers get the sweep by `tune sync`. Threads may ask and tell at once.

        >>> import tempfile, tuning
        >>> space, budget = {"x": tuning.uniform(0, 1)}, tuning.Budget(trials=3)
        >>> folder = tempfile.mkdtemp()
        >>> sweep = tuning.Sweep(metric="loss", space=space, budget=budget, storage=folder)
        >>> while trial := sweep.ask():
        ...     _ = sweep.tell(trial, {"loss": trial.params["x"] ** 2})
        >>> len(sweep.trials), sweep.best()["trial"] in sweep.trials["trial"].values
        (3, True)

        Args:
            count: at most so many trials, as a list. The study has them when it returns, with one
                write of its journal. Their records are written together with what is told, or
                after a second.

        Returns:
            None, or fewer than `count`, if the budget or the scheduler allows no more now.

        Raises:
            UserError: another driver owns the folder.
        """
        trials = self._session().ask(1 if count is None else count)
        self._close_if_finished()
        return trials if count is not None else next(iter(trials), None)

    def tell(
        self,
        trial: Trial | str,
        metrics: Mapping[str, Any] | None = None,
        *,
        step: int | None = None,
        error: str | None = None,
    ) -> bool:
        """What a trial reports, or how it ended.

        Args:
            trial: from `ask`, or its id.
            metrics: of this step; not needed to end a trial that has reported.
            step: of a trial that goes on. Without it, the trial has ended.
            error: one line if it failed; `ask` returns it again as `failure.max_retries` allows.

        Returns:
            Whether the trial goes on; False also if the scheduler stops it.

        Raises:
            UserError: no such trial, or the step is not higher than the one before.
        """
        goes_on = self._session().tell(
            trial if isinstance(trial, str) else trial.id, metrics, step, error
        )
        self._close_if_finished()
        return goes_on

    @contextmanager
    def batched(self) -> Iterator[None]:
        """Write what the block asks and tells in one go: many times as fast for many trials.

        It is durable when the block ends, each record with one write. In a longer block, an ask or
        a tell that comes a second after the last write writes, too. A process that is killed in it
        loses what was not yet written: such trials are asked for again.

        >>> import tempfile, tuning
        >>> space, budget = {"x": tuning.uniform(0, 1)}, tuning.Budget(trials=100)
        >>> folder = tempfile.mkdtemp()
        >>> sweep = tuning.Sweep(metric="loss", space=space, budget=budget, storage=folder)
        >>> trials = sweep.ask(100)
        >>> with sweep.batched():
        ...     for trial in trials:
        ...         _ = sweep.tell(trial, {"loss": trial.params["x"] ** 2})
        >>> len(sweep.trials)
        100
        """
        with self._session().batched():
            yield
        self._close_if_finished()

    def close(self) -> None:
        """Write the results, and give the folder back after `ask`; unfinished trials come again."""
        with self._opening:
            asked, self._asked = self._asked, None
            if asked is not None:
                asked.close()

    def _session(self) -> AskTell:
        from tuning.python.ask_tell import AskTell

        with self._opening:
            if self._asked is None:
                self._asked = AskTell(*self._created())
                weakref.finalize(self, self._asked.close)
            return self._asked

    def _close_if_finished(self) -> None:
        asked = self._asked
        if asked is not None and asked.finished:
            self.close()
