"""The report's plot of where the time of trials goes."""

from __future__ import annotations

import plotly.graph_objects as go

from results.analysis.phases import add, bottleneck
from results.report.plots.colours import PHASE
from results.report.plots.figures import blank
from results.report.sweep_data import SweepData


def phases_figure(data: SweepData) -> go.Figure | None:
    """A stacked bar of seconds by phase for each trial; None if none was measured."""
    if not data.phases:
        return None
    figure = blank("seconds, mean over the ranks", "")
    trials = list(reversed(data.phases))  # plotly draws from the bottom
    for phase, colour in PHASE.items():
        x = [data.phases[t].get(phase, 0.0) for t in trials]
        if any(x):
            figure.add_bar(y=trials, x=x, orientation="h", name=phase, marker={"color": colour})
    figure.update_yaxes(type="category")
    legend = {"traceorder": "normal", "y": 1.0, "yanchor": "bottom"}  # above the first bar
    return figure.update_layout(barmode="stack", height=160 + 22 * len(trials), legend=legend)


def phases_notes(data: SweepData) -> list[str]:
    """What the plot shows, and the bottleneck of all its trials together."""
    found = bottleneck(add(data.phases.values()))
    notes = [f"The best {len(data.phases)} trials."] if len(data.phases) > 1 else []
    return [*notes, f"Bottleneck: {found}."] if found else notes
