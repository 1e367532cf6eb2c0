"""Ask and tell: trials that the caller runs, with the records of a sweep that `tune run` runs."""

from __future__ import annotations

import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, overload

from results.paths import SweepPaths
from results.records.reports import Report, ReportWriter, read_chain
from search_spaces.errors import UserError, suggest
from search_spaces.spec.sweep import SweepSpec
from trainables.job import TrialJob, as_step
from trainables.user_code.metrics import flat_numbers


@dataclass(frozen=True)
class Trial:
    """A trial to run, as `Sweep.ask` returns it.

    Attributes:
        id: as `tune show` has it.
        params: values of the searched parameters, by dotted name.
        config: nested, with what is fixed.
        seed: for everything random in it.
        step: the last one that an earlier process told; 0 for a new trial.
    """

    id: str
    params: dict[str, Any]
    config: dict[str, Any]
    seed: int
    step: int = 0


class AskTell:
    """Owns a sweep's folder until `close`, as the driver of `tune run` does.

    Args:
        paths, spec: of the sweep.

    Raises:
        UserError: another driver owns it.
    """

    def __init__(self, paths: SweepPaths, spec: SweepSpec) -> None:
        from tuning.controller.commands import CommandHandler, pending_commands  # with Optuna
        from tuning.controller.session import asked_session

        self._stack, earlier = ExitStack(), pending_commands(paths)
        self._run = self._stack.enter_context(asked_session(paths, spec))
        self._before = frozenset(self._run.records)
        self._commands = CommandHandler(self._run)
        self._commands.begin(earlier)
        self._reports: dict[str, ReportWriter] = {}
        self._told: dict[str, int] = {}
        self._batches = 0
        self._lock = threading.RLock()
        self._timer: threading.Timer | None = None

    @property
    def finished(self) -> bool:
        """Whether no trial runs, none is left to run, and no batch is open."""
        return not self._batches and self._run.finished

    @contextmanager
    def batched(self, *, records_later: bool = False) -> Iterator[None]:
        """See `Sweep.batched` and `SweepController.batched`."""
        held = ExitStack()
        with self._lock:
            held.enter_context(self._run.batched(records_later=records_later))
            self._batches += 1
        try:
            yield
        finally:
            with self._lock:
                self._batches -= 1
                held.close()

    def ask(self, count: int) -> list[Trial]:
        """At most so many trials; fewer if the budget or the scheduler allows no more now.

        The study has them when this returns. Their records are written with the next write, or by
        a timer.
        """
        from tuning.controller import trial_table

        with self._lock:
            self._commands()
            with self.batched(records_later=True):
                jobs = [job for _ in range(count) if (job := self._run.next_trial()) is not None]
            if self._timer is None and self._run.table.has_unwritten:
                self._timer = threading.Timer(trial_table.LONGEST_S, self._write_records)
                self._timer.daemon = True
                self._timer.start()
            return [self._trial(job) for job in jobs]

    def _write_records(self) -> None:
        """Write the records of trials that were asked for; the next write repeats an error."""
        with self._lock, suppress(OSError, UserError):
            if self._timer is not None:
                self._timer = None
                self._run.table.flush()

    def _trial(self, job: TrialJob) -> Trial:
        record = self._run.records[job.trial_id]
        new = record.id not in self._before
        self._reports[record.id] = ReportWriter(job.paths, job.attempt, new=new)
        self._told[record.id] = 0
        before = read_chain(job.paths).last_step if job.attempt > 1 else None
        return Trial(record.id, record.params, job.config, job.seed, before or 0)

    def tell(
        self,
        trial: str,
        metrics: Mapping[str, Any] | None,
        step: int | None,
        error: str | None,
    ) -> bool:
        """See `Sweep.tell`."""
        run = self._run
        with self._lock, self.batched():
            self._commands()
            if trial not in run.records:
                hint = suggest(trial, run.records)
                raise UserError(f"{run.paths.name}: no trial '{trial}'{hint}")
            if trial not in run.queue.running:
                return False
            if metrics is not None and not self._report(trial, metrics, step):
                return False
            if error is not None:
                run.on_failed(trial, error)
            elif step is None:
                run.on_ended(trial)
            return error is None and step is not None

    def _report(self, trial: str, metrics: Mapping[str, Any], step: int | None) -> bool:
        """Record a report; returns whether the trial goes on."""
        from tuning.search.schedulers import Decision

        run, last = self._run, self._told[trial]
        step = last + 1 if step is None else as_step(step)
        if step <= last:
            raise UserError(f"tell({trial}): steps must increase, got {step} after {last}")
        attempt = run.records[trial].attempts[-1].number
        numbers = flat_numbers(dict(metrics), run.spec.metric)
        report = Report(step=step, metrics=numbers, attempt=attempt, time=time.time())
        run.table.write_report(trial, self._reports[trial], report)
        self._told[trial] = step
        return run.on_report(trial, report) is Decision.CONTINUE

    def close(self) -> None:
        """Write the results and give the folder back; trials that run are asked for again."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            self._commands.end()
            self._stack.close()


class Asking(ABC):
    """A sweep whose trials the caller runs."""

    _asked: AskTell | None = None
    _end: Callable[[], object] = staticmethod(lambda: None)
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
            self._asked = None
            self._end()  # once: it is forgotten, with all that the session holds

    def _session(self) -> AskTell:
        with self._opening:
            if self._asked is None:
                self._asked = AskTell(*self._created())
                self._end = weakref.finalize(self, self._asked.close)
            return self._asked

    def _close_if_finished(self) -> None:
        asked = self._asked
        if asked is not None and asked.finished:
            self.close()
