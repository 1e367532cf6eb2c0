"""The live table of `Sweep.run`, in a terminal or a notebook."""

from __future__ import annotations

import io
import sys
import time
from typing import Any

from results.records.trial import Report, TrialRecord
from results.tracking import Ending
from tuning.cli.formatting import make_console
from tuning.cli.live_view import LiveView
from tuning.controller.events import SessionStart, SweepEvents

_INTERVAL_S, _WIDTH = 0.5, 120


class NotebookView(LiveView):
    """The table of the terminal below a notebook's cell, updated in place.

    Args:
        display: shows an object, and returns a handle with `update`: `IPython.display.display`.
    """

    def __init__(self, display: Any) -> None:
        from rich.console import Console

        super().__init__(Console(width=_WIDTH, file=io.StringIO(), force_jupyter=False))
        self._display, self._handle, self._shown = display, None, 0.0

    def session_started(self, start: SessionStart) -> None:
        """Show an empty table."""
        super(LiveView, self).session_started(start)
        self._handle = self._display(self._table_html(), raw=True, display_id=True)

    def trial_started(self, record: TrialRecord) -> None:
        """Update the table."""
        super().trial_started(record)
        self._update()

    def trial_reported(self, record: TrialRecord, report: Report) -> None:
        """Update the table."""
        super().trial_reported(record, report)
        self._update()

    def trial_ended(self, record: TrialRecord) -> None:
        """Update the table."""
        super().trial_ended(record)
        self._update()

    def session_ended(self, ending: Ending | None) -> None:
        """Show the table as it is at the end."""
        self._update(0.0)

    def _update(self, interval_s: float = _INTERVAL_S) -> None:
        if self._handle is not None and time.monotonic() - self._shown >= interval_s:
            self._shown = time.monotonic()
            self._handle.update(self._table_html(), raw=True)

    def _table_html(self) -> dict[str, str]:
        from rich.console import Console

        console = Console(width=_WIDTH, file=io.StringIO(), record=True, force_jupyter=False)
        console.print(self.render())
        text = console.export_text(clear=False)
        html = console.export_html(inline_styles=True, code_format="<pre>{code}</pre>")
        return {"text/plain": text, "text/html": html}


def live_view(wanted: bool | None) -> list[SweepEvents]:
    """The view for this place; none if there is no terminal or notebook, or none is wanted."""
    if wanted is False:
        return []
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    if getattr(shell, "kernel", None) is not None:
        from IPython.display import display

        return [NotebookView(display)]
    console = make_console()
    return [LiveView(console)] if wanted or console.is_terminal else []
