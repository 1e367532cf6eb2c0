"""Plots of importance and cost, as plotly figures; `axes.text` escapes all text in them."""

from __future__ import annotations

import plotly.graph_objects as go

from results.analysis.leaderboard import TrialSummary
from results.report.plots.axes import text, whole_ticks
from results.report.plots.colours import METHODS, STATES
from results.report.sweep_data import SweepData


def importances(data: SweepData) -> go.Figure | None:
    """Bars by parameter and method; None if no importance was computed."""
    if not data.importances:
        return None
    figure = blank("share", "")
    for one, colour in zip(data.importances, METHODS, strict=False):
        names = list(reversed(data.importances[0].shares))
        figure.add_bar(
            y=[text(n) for n in names],
            x=[one.shares.get(n, 0.0) for n in names],
            orientation="h",
            name=text(one.method),
            marker={"color": colour},
        )
    figure.update_yaxes(type="category")
    figure.update_layout(legend={"traceorder": "reversed"})  # same order as the bars, from the top
    return figure.update_layout(height=140 + 45 * len(data.importances[0].shares))


def costs(data: SweepData) -> go.Figure:
    """Worker-seconds that each trial took."""
    figure = blank("trial", "worker-seconds")
    for state, colour in STATES.items():
        of = sorted((e for e in data.summaries if e.record.state is state), key=_number)
        if of:
            x, seconds = [_number(e) for e in of], [e.record.worker_seconds for e in of]
            figure.add_bar(x=x, y=seconds, width=0.8, name=state.value, marker={"color": colour})
    figure.update_xaxes(whole_ticks([_number(e) for e in data.summaries]))
    return figure.update_layout(barmode="overlay")


def _number(line: TrialSummary) -> int:
    return line.record.number


def blank(x: str, y: str) -> go.Figure:
    """An empty figure in the style of the report; axis titles must be escaped."""
    figure = go.Figure().update_xaxes(title=x).update_yaxes(title=y)
    return figure.update_layout(
        template="none",
        height=400,
        margin={"l": 70, "r": 30, "t": 60, "b": 50},
        legend={"orientation": "h", "y": 1.0, "yanchor": "bottom"},
        font={"family": "system-ui, sans-serif"},
    )
