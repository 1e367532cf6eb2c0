"""What is seen while a sweep runs: a live table in a terminal, one line per event elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import isfinite
from typing import Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from results.analysis.pareto import fronts
from results.records.trial import Report, TrialRecord, TrialState
from search_spaces.spec.sweep import SweepSpec
from tuning.cli.formatting import duration, number, setting
from tuning.cli.trials_table import trials_table
from tuning.controller.events import SweepEvents
from tuning.controller.resources.forecast import forecast, trial_cost

_OTHER_LINES = 8


class View(SweepEvents, Protocol):
    """Shows a sweep to a person."""

    board: SweepProgress

    def say(self, message: str) -> None:
        """What is going on when no trial says anything."""
        ...

    @contextmanager
    def showing(self) -> Iterator[None]:
        """Show the sweep while the block runs."""
        ...


class SweepProgress:
    """What is known of the sweep's trials, and which is the best: shared by both views.

    Attributes:
        rows: the trials by id.
        last: of each, the newest step and the newest value of each objective.
        before_s: seconds of earlier sessions.
        at_once: how many trials run at once.
    """

    def __init__(self, spec: SweepSpec) -> None:
        self.spec = spec
        self.rows: dict[str, TrialRecord] = {}
        self.last: dict[str, tuple[int, tuple[float | None, ...]]] = {}
        self._names = [o.metric for o in spec.objectives]
        self._nothing = 0, tuple(None for _ in self._names)
        self._front: list[str] | None = None
        self.before_s = 0.0
        self.at_once = 1
        self._since = time.monotonic()

    def trial_started(self, record: TrialRecord) -> None:
        """Keep the newest state of a trial."""
        self.rows[record.id] = record
        self._front = None

    def reported(self, record: TrialRecord, report: Report) -> None:
        """Keep a trial's newest report."""
        known = self.newest(record.id)[1]
        pairs = zip(self._names, known, strict=True)
        values = tuple(report.metrics.get(name, value) for name, value in pairs)
        self.last[record.id] = report.step, values
        self._front = None

    def newest(self, trial_id: str) -> tuple[int, tuple[float | None, ...]]:
        """A trial's newest step and values."""
        return self.last.get(trial_id, self._nothing)

    def trial_ended(self, record: TrialRecord) -> None:
        """Keep the newest state of a trial."""
        self.rows[record.id] = record
        self._front = None

    @property
    def elapsed_s(self) -> float:
        """Seconds since this session began."""
        return time.monotonic() - self._since

    @property
    def total_s(self) -> float:
        """Seconds that the sweep took so far, earlier sessions included."""
        return self.before_s + self.elapsed_s

    @property
    def ahead(self) -> str:
        """What is left to come, in words; empty while nothing is known."""
        records = list(self.rows.values())
        each = trial_cost(records)
        left = forecast(self.spec.budget, records, each, self.at_once, self.total_s)
        return (
            f"about {duration(left.seconds)} and {left.cost} left" if left and left.seconds else ""
        )

    @property
    def done(self) -> int:
        """Trials that are finished, or paused."""
        return sum(r.state.rests for r in self.rows.values())

    def best(self) -> list[str]:
        """The trial whose newest value is the best, or with several objectives those on the Pareto
        front; failed ones do not count.
        """
        if self._front is None:
            self._front = self._leaders()
        return self._front

    def _leaders(self) -> list[str]:
        signs = [1 if o.mode == "max" else -1 for o in self.spec.objectives]
        scores = {
            trial_id: [sign * v for sign, v in zip(signs, values, strict=True) if v is not None]
            for trial_id, (_, values) in self.last.items()
            if self.rows[trial_id].eligible
        }
        known = {i: s for i, s in scores.items() if len(s) == len(signs) and all(map(isfinite, s))}
        if len(signs) == 1:
            return [max(known, key=lambda i: known[i][0])] if known else []
        levels = fronts(list(known.values()))
        return [i for i, level in zip(known, levels, strict=True) if level == 0]

    def line(self, record: TrialRecord) -> str:
        """Step and value of a trial, in words."""
        step, values = self.newest(record.id)
        return f"step {step}  {self.words(values)}"

    def words(self, values: Sequence[float | None]) -> str:
        """Every objective with its value."""
        pairs = zip(self._names, values, strict=True)
        return "  ".join(f"{name} {number(value)}" for name, value in pairs)


class LiveView:
    """One table that is drawn anew: running trials first, then the best."""

    def __init__(self, board: SweepProgress, console: Console) -> None:
        self.board, self._console = board, console
        self._message = "starting"

    def trial_started(self, record: TrialRecord) -> None:
        """Show it as running."""
        self.board.trial_started(record)
        self._message = ""

    def reported(self, record: TrialRecord, report: Report) -> None:
        """Show its newest value."""
        self.board.reported(record, report)

    def trial_ended(self, record: TrialRecord) -> None:
        """Show how it ended."""
        self.board.trial_started(record)

    def say(self, message: str) -> None:
        """Show what is going on below the table."""
        self._message = message

    @contextmanager
    def showing(self) -> Iterator[None]:
        """Draw until the block ends; the last picture is replaced by the summary."""
        with Live(
            console=self._console, get_renderable=self._draw, refresh_per_second=4, transient=True
        ):
            yield

    def _draw(self) -> RenderableType:
        parts: list[RenderableType] = [self._table(), self._progress()]
        if self._message:
            parts.append(Text(self._message, style="dim"))
        return Group(*parts)

    def _table(self) -> Table:
        board = self.board
        room = max(5, self._console.height - _OTHER_LINES)
        rows = [(r, *board.newest(r.id)) for r in self._order()[:room]]
        return trials_table(board.spec, rows, board.best(), self._console.width)

    def _order(self) -> list[TrialRecord]:
        sign = 1 if self.board.spec.mode == "min" else -1

        def key(record: TrialRecord) -> tuple[bool, bool, float]:
            value = self.board.newest(record.id)[1][0]
            unknown = value is None or value != value
            return (
                record.state is not TrialState.RUNNING,
                unknown,
                0.0 if value is None or unknown else sign * value,
            )

        return sorted(list(self.board.rows.values()), key=key)

    def _progress(self) -> RenderableType:
        board, budget = self.board, self.board.spec.budget
        total = budget.trials or 0
        share = board.done / total if total else 0.0
        if budget.time:
            share = max(share, board.total_s / budget.time)
        of = f"/{total}" if total else ""
        ahead = board.ahead
        limit = f" of {duration(budget.time)}" if budget.time else ""
        best = board.best()
        text = f" {board.done}{of} trials  {duration(board.total_s)}{limit}"
        if len(board.spec.objectives) > 1:
            text += f"  {len(best)} on the Pareto front"
        elif best:
            text += f"  best {board.words(board.newest(best[0])[1])} ({best[0]})"
        text += f"  {ahead}" * bool(ahead)
        grid = Table.grid()
        grid.add_row(ProgressBar(total=1.0, completed=min(share, 1.0), width=30), text)
        return grid


class LineView:
    """One plain line per event, for logs and pipes."""

    def __init__(self, board: SweepProgress, console: Console) -> None:
        self.board, self._console = board, console

    def trial_started(self, record: TrialRecord) -> None:
        """Its configuration; on a retry or resume, which attempt."""
        self.board.trial_started(record)
        params = " ".join(f"{k}={setting(v)}" for k, v in record.params.items())
        again = f" attempt {len(record.attempts)}" if len(record.attempts) > 1 else ""
        if self.board.spec.resources.elastic and record.attempts:
            ranks = record.attempts[-1].workers
            again += f" with {ranks} worker{'s' * (ranks != 1)}"
        where = record.attempts[-1].where if record.attempts else ""
        self.say(f"{record.id} started{again}  {params}{f' ({where})' * bool(where)}")

    def reported(self, record: TrialRecord, report: Report) -> None:
        """Its newest value."""
        self.board.reported(record, report)
        self.say(f"{record.id} {self.board.line(record)}")

    def trial_ended(self, record: TrialRecord) -> None:
        """Why it ended."""
        self.board.trial_started(record)
        if record.state is TrialState.PENDING:
            error = record.attempts[-1].error
            said = f"failed, will be retried: {error}" if error else record.reason or "interrupted"
        else:
            said = f"{record.state}: {record.reason}"
            ahead = self.board.ahead
            said += f"; {ahead}" * bool(ahead)
        self.say(f"{record.id} {said}")

    def say(self, message: str) -> None:
        """Print a line with the time since the start."""
        self._console.print(
            f"[{duration(self.board.elapsed_s):>7}] {message}",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )

    @contextmanager
    def showing(self) -> Iterator[None]:
        """Lines need no preparation."""
        yield


def make_view(board: SweepProgress, console: Console) -> LiveView | LineView:
    """A live table where there is a terminal, lines where there is none."""
    return (LiveView if console.is_terminal else LineView)(board, console)
