"""Which trial the workers had when, with the time in which they had none; and seconds by phase.

The records have the times of attempts, not their workers. Each attempt is given to the first
group of workers that is free.
"""

from __future__ import annotations

import bisect
import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from results.analysis.phases import add, bottleneck
from results.records.trial import TrialRecord, TrialState
from results.report.page import unit_for
from results.report.plots.figures import IDLE, PHASE, STARTING, STATES, blank, text
from results.report.sweep_data import SweepData

_MAX_BARS = 3000
"""Newest attempts that are drawn."""


@dataclass(frozen=True)
class Bar:
    """A part of a row. Times are Unix seconds; `kind` is a state, `starts` or `idle`."""

    row: int
    start: float
    end: float
    kind: str
    label: str


def bars(records: Sequence[TrialRecord], sessions: Sequence[float]) -> list[Bar]:
    """The attempts by groups of workers, and the gaps between those of one session.

    Args:
        sessions: when each began, in Unix seconds, ascending.
    """
    attempts = [(a, record) for record in records for a in record.attempts]
    attempts = sorted(attempts, key=lambda pair: pair[0].started)[-_MAX_BARS:]
    free: list[tuple[int, float]] = []  # rows by the time since when they are free
    busy: list[tuple[float, int]] = []
    found: list[Bar] = []
    opened: dict[int, float] = {}  # the start of the first attempt of each session
    for attempt, record in attempts:
        while busy and busy[0][0] <= attempt.started:
            end, row = heapq.heappop(busy)
            heapq.heappush(free, (row, end))
        row, since = heapq.heappop(free) if free else (len(busy), attempt.started)
        session = bisect.bisect_right(sessions, attempt.started)
        since = max(since, opened.setdefault(session, attempt.started))
        if since < attempt.started:
            found.append(Bar(row, since, attempt.started, "idle", "no trial"))
        end, state = attempt.started + attempt.held_seconds, record.state
        runs = min(attempt.started + attempt.waited, end)
        if attempt is not record.attempts[-1]:  # a trial that goes on was paused or failed before
            state = TrialState.FAILED if attempt.error else TrialState.PAUSED
        if attempt.waited:
            found.append(Bar(row, attempt.started, runs, "starts", f"{record.id} waits"))
        found.append(Bar(row, runs, end, state.value, record.id))
        heapq.heappush(busy, (end, row))
    return found


def workers_figure(data: SweepData) -> go.Figure | None:
    """The Gantt chart; None before the first attempt."""
    found = bars([record for record, _ in data.trials], data.sessions)
    if not found:
        return None
    began, end = min(b.start for b in found), max(b.end for b in found)
    unit = unit_for(end - began)
    figure = blank(f"{unit.name} since the first trial", "workers of one trial")
    colours = {state.value: colour for state, colour in STATES.items()}
    for kind, colour in {**colours, "starts": STARTING, "idle": IDLE}.items():
        of = [b for b in found if b.kind == kind]
        if of:
            figure.add_bar(
                y=[b.row for b in of],
                base=[round((b.start - began) / unit.seconds, 4) for b in of],
                x=[round((b.end - b.start) / unit.seconds, 4) for b in of],
                text=[text(b.label) for b in of],
                orientation="h",
                name=kind,
                marker={"color": colour, "line": {"width": 0.5, "color": "rgba(128,128,128,0.6)"}},
                textposition="inside",
                insidetextanchor="middle",
                textangle=0,
                hovertemplate="%{text}: %{x:.3g} " + unit.symbol + "<extra></extra>",
            )
    rows = max(b.row for b in found) + 1
    figure.update_yaxes(autorange="reversed", tickvals=list(range(rows)), showgrid=False)
    figure.update_yaxes(ticktext=[str(row + 1) for row in range(rows)])
    figure.update_layout(uniformtext={"mode": "hide", "minsize": 9})
    return figure.update_layout(barmode="overlay", bargap=0.15, height=150 + 32 * min(rows, 24))


def idle_share(data: SweepData) -> float:
    """The part of the drawn time in which workers had no trial."""
    found = bars([record for record, _ in data.trials], data.sessions)
    whole = sum(b.end - b.start for b in found)
    return sum(b.end - b.start for b in found if b.kind == "idle") / whole if whole else 0.0


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
    height = 160 + (22 if len(trials) <= 12 else 15) * len(trials)
    return figure.update_layout(barmode="stack", height=height, legend=legend)


def phases_notes(data: SweepData) -> list[str]:
    """What the plot shows, and the bottleneck of all its trials together."""
    found = bottleneck(add(data.phases.values()))
    notes = [f"The best {len(data.phases)} trials."] if len(data.phases) > 1 else []
    return [*notes, f"Bottleneck: {found}."] if found else notes
