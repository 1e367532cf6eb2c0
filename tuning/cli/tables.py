"""The table of trials, the same while a sweep runs, at its end and in `tune show`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from rich.table import Table
from rich.text import Text

from results.records import TrialRecord
from search_spaces.schema import SweepSpec
from tuning.cli.format import duration, heading, number, state_style

Row = tuple[TrialRecord, int, float | None]
"""A trial, its newest step, and the metric's value there."""


def trials_table(spec: SweepSpec, rows: Iterable[Row], best: str | None = None) -> Table:
    """Trials with the parameters that vary, in the order given; `best` is marked."""
    params = list(spec.domains())
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("trial", "state", "step", spec.metric, *params, "time"):
        justify: Literal["left", "right"] = "left" if name in ("trial", "state") else "right"
        table.add_column(heading(name), justify=justify, vertical="bottom")
    for record, step, value in rows:
        table.add_row(
            record.id + " *" * (record.id == best),
            Text(record.state, style=state_style(record.state)),
            str(step),
            number(value),
            *(number(record.params.get(p)) for p in params),
            duration(record.seconds),
            style="bold" if record.id == best else "",
        )
    return table
