"""Plots of importance and cost, and what all plots share: axes and colours.

`text` escapes all text in them. Each colour has one meaning, and is legible on white and on black.
"""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go

from results.analysis.leaderboard import TrialSummary
from results.records.trial import TrialState
from results.records.worker_samples import PHASES
from results.report.sweep_data import SweepData

STATES = {
    TrialState.COMPLETED: "#1a9c6b",
    TrialState.STOPPED: "#e0a030",
    TrialState.FAILED: "#c0392b",
    TrialState.RUNNING: "#2e86c1",
    TrialState.PAUSED: "#8e6bbf",
    TrialState.PENDING: "#95a5a6",
}
BEST = "#e0218a"
"""The best so far, the winner's curve, the Pareto front."""
WENT_ON = "#5fb0b7"
"""Trials that continued above a rung."""
METHODS = ("#9c6644", "#d4a373")
"""Of the importance of parameters."""
INHERITED = "#b56576"
TRACK = "#c8d0d4"
STARTING, IDLE = "#546e7a", "#d4e157"
"""Of a group of workers: it waits for its processes; it has no trial."""
PHASE = dict(
    zip(
        PHASES,
        ("#cfd8dc", "#ffd6a5", "#a8dadc", "#cdb4db", "#90caf9", "#ffadad", "#bcaaa4"),
        strict=True,
    )
)
SWEEPS = ("#3b6fb6", "#d1495b", "#6a994e", "#edae49", "#7b5ea7", "#3fa7a0")
"""Of the lines of a comparison, again from the start for more."""
RUNG = "#888888"


_MAX_WHOLE = 10
"""A plot that chooses its ticks puts them at whole numbers over a longer range."""


def text(value: object) -> str:
    """Escape a user's text for a plot: plotly interprets some HTML in its labels."""
    return html.escape(str(value))


def whole_ticks(values: Sequence[float]) -> dict[str, Any]:
    """Settings of a plot's axis for whole numbers: no ticks in between, even if they are few."""
    low, high = math.floor(min(values, default=0)), math.ceil(max(values, default=0))
    return {"dtick": 1} if high - low <= _MAX_WHOLE else {}


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
