"""The output of `tune run`: a live table in a terminal, one line per event elsewhere."""

from __future__ import annotations

from math import inf, isnan

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from results.records.trial import Report, TrialRecord, TrialState
from results.tracking import Ending
from tuning.cli.formatting import duration, print_lines, setting
from tuning.cli.progress import SweepProgress
from tuning.cli.table import Table as TextTable
from tuning.cli.trials_table import trials_table
from tuning.controller.events import SessionStart, SweepEvents

_OTHER_LINES = 8


class View(SweepEvents):
    """Base of both views: tracks the progress, and prints messages before the session starts."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._progress: SweepProgress | None = None

    @property
    def progress(self) -> SweepProgress:
        """The progress of the session, which must have started."""
        assert self._progress is not None, "no session has started"
        return self._progress

    def session_started(self, start: SessionStart) -> None:
        """Print the introduction, and start from the records of earlier sessions."""
        print_lines(self.console, *start.introduction)
        self._progress = SweepProgress(start)

    def message(self, text: str) -> None:
        """Print a line; during the session, show it in the view."""
        if self._progress is None:
            print_lines(self.console, text)
        else:
            self.show_message(text)

    def show_message(self, text: str) -> None:
        """Show a message of the session."""
        raise NotImplementedError

    def concurrency_known(self, trials: int) -> None:
        """Keep it for the forecast."""
        self.progress.concurrency = trials

    def trial_started(self, record: TrialRecord) -> None:
        """Keep the newest state."""
        self.progress.update(record)

    def trial_reported(self, record: TrialRecord, report: Report) -> None:
        """Keep the newest values."""
        self.progress.add_report(record, report)

    def trial_ended(self, record: TrialRecord) -> None:
        """Keep the newest state."""
        self.progress.update(record)


class LiveView(View):
    """One table that is redrawn: running trials first, then the best."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._message = "starting"
        self._live: Live | None = None

    def session_started(self, start: SessionStart) -> None:
        """Start drawing."""
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
        """Show the trial as running, and clear the message."""
        super().trial_started(record)
        self._message = ""

    def show_message(self, text: str) -> None:
        """Show the message below the table."""
        self._message = text

    def render(self) -> RenderableType:
        """The table, the progress bar and the newest message."""
        parts: list[RenderableType] = [self._table(), self._bar()]
        if self._message:
            parts.append(Text(self._message, style="dim"))
        return Group(*parts)

    def _table(self) -> TextTable:
        progress = self.progress
        num_rows = max(5, self.console.height - _OTHER_LINES)
        rows = [(r, *progress.newest(r.id)) for r in self._order()[:num_rows]]
        return trials_table(progress.spec, rows, progress.leaders())

    def _order(self) -> list[TrialRecord]:
        sign = 1 if self.progress.spec.mode == "min" else -1

        def key(record: TrialRecord) -> tuple[bool, float]:
            value = self.progress.newest(record.id)[1][0]
            rank = inf if value is None or isnan(value) else sign * value
            return record.state is not TrialState.RUNNING, rank

        return sorted(self.progress.records.values(), key=key)

    def _bar(self) -> RenderableType:
        progress, budget = self.progress, self.progress.spec.budget
        total = budget.trials or 0
        share = progress.num_done / total if total else 0.0
        if budget.time:
            share = max(share, progress.total_s / budget.time)
        of = f"/{total}" if total else ""
        remaining = progress.remaining
        limit = f" of {duration(budget.time)}" if budget.time else ""
        leaders = progress.leaders()
        text = f" {progress.num_done}{of} trials  {duration(progress.total_s)}{limit}"
        if len(progress.spec.objectives) > 1:
            text += f"  {len(leaders)} on the Pareto front"
        elif leaders:
            text += f"  best {progress.format_values(leaders[0])} ({leaders[0]})"
        text += f"  {remaining}" if remaining else ""
        grid = Table.grid()
        grid.add_row(ProgressBar(total=1.0, completed=min(share, 1.0), width=30), text)
        return grid


class LineView(View):
    """One plain line per event, for logs and pipes."""

    def trial_started(self, record: TrialRecord) -> None:
        """Print the configuration, and the number of the attempt after a retry or resume."""
        super().trial_started(record)
        params = " ".join(f"{k}={setting(v)}" for k, v in record.params.items())
        attempt = f" attempt {len(record.attempts)}" if len(record.attempts) > 1 else ""
        last = record.attempts[-1] if record.attempts else None
        if last and (self.progress.spec.resources.elastic or last.layout):
            attempt += f" with {last.workers_and_layout}"
        where = f" ({last.where})" if last and last.where else ""
        self.show_message(f"{record.id} started{attempt}  {params}{where}")

    def trial_reported(self, record: TrialRecord, report: Report) -> None:
        """Print the step and the values."""
        super().trial_reported(record, report)
        values = self.progress.format_values(record.id)
        self.show_message(f"{record.id} step {report.step}  {values}")

    def trial_ended(self, record: TrialRecord) -> None:
        """Print why the attempt ended."""
        super().trial_ended(record)
        if record.state is TrialState.PENDING:
            error = record.attempts[-1].error
            text = f"failed, will be retried: {error}" if error else record.reason or "interrupted"
            if error and record.reason:
                text = f"{record.reason}: {error}"
        else:
            text = f"{record.state}: {record.reason}"
            if remaining := self.progress.remaining:
                text += f"; {remaining}"
        self.show_message(f"{record.id} {text}")

    def show_message(self, text: str) -> None:
        """Print the message with the time since the start of the session."""
        self.console.print(
            f"[{duration(self.progress.elapsed_s):>7}] {text}",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )


def make_view(console: Console) -> View:
    """A live table in a terminal, lines elsewhere."""
    return LiveView(console) if console.is_terminal else LineView(console)
