"""What is seen while a sweep runs: a live table in a terminal, one line per event elsewhere."""

from __future__ import annotations

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from results.records.trial import Report, TrialRecord, TrialState
from results.tracking import Ending
from tuning.cli.formatting import duration, setting
from tuning.cli.run.progress import SweepProgress, progress_of
from tuning.cli.trials_table import trials_table
from tuning.controller.events import SessionStart, SweepEvents

_OTHER_LINES = 8


class View(SweepEvents):
    """Base of both views: keeps the progress, and prints messages that come before the session."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._progress: SweepProgress | None = None

    @property
    def progress(self) -> SweepProgress:
        """Of the session, which has started."""
        assert self._progress is not None, "no session has started"
        return self._progress

    def session_started(self, start: SessionStart) -> None:
        """Begin with what earlier sessions recorded."""
        self._progress = progress_of(start)

    def message(self, text: str) -> None:
        """Print a line, or show it with the sweep."""
        if self._progress is None:
            self.console.print(text, soft_wrap=True)
        else:
            self.show_message(text)

    def show_message(self, text: str) -> None:
        """Show what happens outside of trials."""
        raise NotImplementedError

    def concurrency_known(self, trials: int) -> None:
        """The forecast depends on it."""
        self.progress.at_once = trials

    def trial_started(self, record: TrialRecord) -> None:
        """Keep its newest state."""
        self.progress.trial_started(record)

    def trial_reported(self, record: TrialRecord, report: Report) -> None:
        """Keep its newest value."""
        self.progress.trial_reported(record, report)

    def trial_ended(self, record: TrialRecord) -> None:
        """Keep its newest state."""
        self.progress.trial_ended(record)


class LiveView(View):
    """One table that is drawn anew: running trials first, then the best."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._message = "starting"
        self._live: Live | None = None

    def session_started(self, start: SessionStart) -> None:
        """Draw from now on."""
        super().session_started(start)
        self._live = Live(
            console=self.console, get_renderable=self.render, refresh_per_second=4, transient=True
        )
        self._live.start()

    def session_ended(self, ending: Ending | None) -> None:
        """Remove the table: the summary takes its place."""
        if self._live is not None:
            self._live.stop()

    def trial_started(self, record: TrialRecord) -> None:
        """Show it as running, and no message."""
        super().trial_started(record)
        self._message = ""

    def show_message(self, text: str) -> None:
        """Show it below the table."""
        self._message = text

    def render(self) -> RenderableType:
        """The table, the bar and the newest message."""
        parts: list[RenderableType] = [self._table(), self._bar()]
        if self._message:
            parts.append(Text(self._message, style="dim"))
        return Group(*parts)

    def _table(self) -> Table:
        board = self.progress
        room = max(5, self.console.height - _OTHER_LINES)
        rows = [(r, *board.newest(r.id)) for r in self._order()[:room]]
        return trials_table(board.spec, rows, board.best(), self.console.width)

    def _order(self) -> list[TrialRecord]:
        sign = 1 if self.progress.spec.mode == "min" else -1

        def key(record: TrialRecord) -> tuple[bool, bool, float]:
            value = self.progress.newest(record.id)[1][0]
            unknown = value is None or value != value
            return (
                record.state is not TrialState.RUNNING,
                unknown,
                0.0 if value is None or unknown else sign * value,
            )

        return sorted(list(self.progress.rows.values()), key=key)

    def _bar(self) -> RenderableType:
        board, budget = self.progress, self.progress.spec.budget
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


class LineView(View):
    """One plain line per event, for logs and pipes."""

    def trial_started(self, record: TrialRecord) -> None:
        """Its configuration; on a retry or resume, which attempt."""
        super().trial_started(record)
        params = " ".join(f"{k}={setting(v)}" for k, v in record.params.items())
        again = f" attempt {len(record.attempts)}" if len(record.attempts) > 1 else ""
        if self.progress.spec.resources.elastic and record.attempts:
            ranks = record.attempts[-1].workers
            again += f" with {ranks} worker{'s' * (ranks != 1)}"
        where = record.attempts[-1].where if record.attempts else ""
        self.show_message(f"{record.id} started{again}  {params}{f' ({where})' * bool(where)}")

    def trial_reported(self, record: TrialRecord, report: Report) -> None:
        """Its newest value."""
        super().trial_reported(record, report)
        self.show_message(f"{record.id} {self.progress.line(record)}")

    def trial_ended(self, record: TrialRecord) -> None:
        """Why it ended."""
        super().trial_ended(record)
        if record.state is TrialState.PENDING:
            error = record.attempts[-1].error
            said = f"failed, will be retried: {error}" if error else record.reason or "interrupted"
        else:
            said = f"{record.state}: {record.reason}"
            ahead = self.progress.ahead
            said += f"; {ahead}" * bool(ahead)
        self.show_message(f"{record.id} {said}")

    def show_message(self, text: str) -> None:
        """Print a line with the time since the start."""
        self.console.print(
            f"[{duration(self.progress.elapsed_s):>7}] {text}",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )


def make_view(console: Console) -> View:
    """A live table where there is a terminal, lines where there is none."""
    return LiveView(console) if console.is_terminal else LineView(console)
