"""The plots of the report, as plotly figures; `axes.text` escapes all text in them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from results.analysis.leaderboard import TrialSummary
from results.analysis.pareto import non_dominated
from results.analysis.replicates import Curve
from results.analysis.selection import selection_objectives
from results.report.plots.axes import Axis, axes, text, whole_ticks
from results.report.plots.colours import BEST, METHODS, RUNG, STATES
from results.report.sweep_data import SweepData

MAX_CURVES, MAX_POINTS = 300, 100
"""Limits of drawn curves and of points per curve, so that a large sweep gives no large page."""
_MAX_DRAWN = 1e300
"""Sums and differences of values up to here are finite."""
_CELLS = 24
"""Cells of the contour along each axis."""
_MAX_LEVEL_LABELS = 7
"""Largest number of axes whose names fit side by side; more are drawn slanted."""


def history(data: SweepData) -> go.Figure:
    """Each trial's value over its number, and the best value so far."""
    figure = blank("trial", text(data.spec.metric))
    known = sorted((e for e in data.summaries if e.value is not None), key=_number)
    for state, colour in STATES.items():
        of = [e for e in known if e.record.state is state]
        if of:
            figure.add_scatter(
                x=[_number(e) for e in of],
                y=[e.value for e in of],
                mode="markers",
                name=state.value,
                marker={"color": colour, "size": 7},
                text=[e.record.id for e in of],
                hovertemplate="%{text}: %{y:.5g}<extra></extra>",
            )
    good = sorted(data.ranked, key=_number)
    if good:
        best = data.sign * np.minimum.accumulate([data.sign * (e.value or 0.0) for e in good])
        line = {"shape": "hv", "color": BEST}
        x = [_number(e) for e in good]
        figure.add_scatter(x=x, y=best, mode="lines", name="best so far", line=line)
    figure.update_xaxes(whole_ticks([_number(e) for e in known]))
    return _limit_range(figure, [e.value for e in good if e.value is not None], data.sign)


def curves(data: SweepData) -> go.Figure:
    """The metric over steps of the best trials, one trace per state, and the rungs."""
    figure = blank("step", text(data.spec.metric))
    shown = [e for e in data.summaries if data.curves[e.record.id]][:MAX_CURVES]
    for state, colour in STATES.items():
        of = [e.record.id for e in shown if e.record.state is state]
        if of:
            _add_curves(figure, [(t, data.curves[t]) for t in of], state.value, colour)
    if data.selection and (curve := data.curves.get(winner := data.selection.line.record.id)):
        xs, ys = zip(*thinned(curve), strict=True)
        line = {"color": BEST, "width": 3}
        figure.add_scatter(x=xs, y=ys, mode="lines", name=winner, line=line)
    for rung in data.rung_steps:
        figure.add_vline(x=rung, line={"color": RUNG, "dash": "dot", "width": 1})
    figure.update_xaxes(whole_ticks([0, *(e.step for e in shown)]))
    values = [value for e in shown for _, value in data.curves[e.record.id]]
    return _limit_range(figure, values, data.sign)


def parallel_coordinates(data: SweepData) -> go.Figure | None:
    """A line per trial through its parameters and its value; None with fewer than two trials."""
    found = axes([e.record.params for e in data.ranked], data.spec.domains())
    if len(data.ranked) < 2 or not found:
        return None
    values = [e.value or 0.0 for e in data.ranked]
    low, high = _range(values, data.sign) or (min(values), max(values))
    metric = Axis(text(data.spec.metric), values, {}, continuous=True)
    line = {
        "color": values,
        "colorscale": "Viridis",
        "reversescale": data.sign > 0,
        "cmin": low,
        "cmax": high,
        "showscale": True,
    }
    dimensions = []
    for axis in [*found.values(), metric]:
        dimensions.append({"label": axis.title, "values": axis.values})
        if axis.ticks:  # the only labels that plotly does not interpret as HTML
            dimensions[-1] |= {"tickvals": [*axis.ticks], "ticktext": [*axis.ticks.values()]}
    slanted = len(dimensions) > _MAX_LEVEL_LABELS
    figure = go.Figure(
        go.Parcoords(line=line, dimensions=dimensions, labelangle=-20 if slanted else 0)
    )
    margin = {"l": 90, "r": 90, "t": 110 if slanted else 60, "b": 30}
    meta = {"min_width": 110 * len(dimensions)}  # a narrow page scrolls the plot
    return _styled(figure).update_layout(margin=margin, meta=meta)


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


def contour(data: SweepData) -> go.Figure | None:
    """The metric over the two most important parameters; None with fewer than two."""
    found = axes([e.record.params for e in data.ranked], data.spec.domains())
    ordered = [n for one in data.importances[:1] for n in one.shares if n in found] or list(found)
    if len(ordered) < 2 or len(data.ranked) < 4:
        return None
    x, y = (found[name] for name in ordered[:2])
    values = np.array([e.value for e in data.ranked], dtype=float)
    figure = blank(x.title, y.title)
    low, high = _range(list(values), data.sign) or (float(values.min()), float(values.max()))
    scale = {"colorscale": "Viridis", "reversescale": data.sign > 0}
    surface = x.continuous and y.continuous
    if surface:
        figure.add_contour(**_cells(x, y, values), zmin=low, zmax=high, connectgaps=True, **scale)
    marker = {"color": values, "cmin": low, "cmax": high, "size": 8, **scale}
    marker["showscale"] = not surface
    figure.add_scatter(
        x=x.values,
        y=y.values,
        mode="markers",
        showlegend=False,
        marker={**marker, "line": {"color": "white", "width": 1}},
        text=[f"{e.record.id}: {e.value:.5g}" for e in data.ranked],
        hovertemplate="%{text}<extra></extra>",
    )
    for axis, update in ((x, figure.update_xaxes), (y, figure.update_yaxes)):
        if axis.ticks:
            update(tickvals=list(axis.ticks), ticktext=[text(t) for t in axis.ticks.values()])
    return figure


def pareto_front(data: SweepData) -> go.Figure | None:
    """The trials by their first two objectives; those on the front of all objectives are marked."""
    if not data.points:
        return None
    modes = selection_objectives(data.spec, data.spec.select)
    x, y = list(modes)[:2]
    figure = blank(text(f"{x} ({modes[x]})"), text(f"{y} ({modes[y]})"))
    for state, colour in STATES.items():
        of = [e.record.id for e in data.summaries if e.record.state is state]
        _add_points(figure, data, of, (x, y), state.value, {"color": colour, "size": 6})
    trials = list(data.points)
    front = [trials[i] for i in non_dominated(list(data.points.values()), modes)]
    ring = {"color": BEST, "size": 12, "symbol": "circle-open", "line": {"width": 2}}
    _add_points(figure, data, front, (x, y), "on the front", ring)
    return figure


def _add_points(
    figure: go.Figure,
    data: SweepData,
    trials: Sequence[str],
    names: tuple[str, str],
    label: str,
    marker: dict[str, Any],
) -> None:
    """Add the trials that have all objectives as points of one trace, if there are any."""
    known = [t for t in trials if t in data.points]
    if known:
        x, y = ([data.points[t][name] for t in known] for name in names)
        hover = "%{text}: %{x:.5g}, %{y:.5g}<extra></extra>"
        figure.add_scatter(
            x=x, y=y, text=known, name=label, mode="markers", marker=marker, hovertemplate=hover
        )


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


def thinned(curve: Curve) -> Curve:
    """At most `MAX_POINTS` points of a curve, including both ends."""
    if len(curve) <= MAX_POINTS:
        return curve
    places = np.linspace(0, len(curve) - 1, MAX_POINTS).round().astype(int)
    return [curve[i] for i in places]


def _add_curves(
    figure: go.Figure, found: Sequence[tuple[str, Curve]], name: str, colour: str
) -> None:
    """Add many curves as one trace, which a browser draws faster than one trace each."""
    xs: list[float | None] = []
    ys: list[float | None] = []
    labels: list[str] = []
    for trial, curve in found:
        points = thinned(curve)
        xs += [*(s for s, _ in points), None]
        ys += [*(float(f"{v:.6g}") for _, v in points), None]
        labels += [trial] * (len(points) + 1)
    figure.add_scatter(
        x=xs,
        y=ys,
        text=labels,
        name=name,
        mode="lines+markers",
        marker={"size": 3},
        line={"color": colour, "width": 1},
        opacity=0.6,
        hovertemplate="%{text} at %{x}: %{y:.5g}<extra></extra>",
    )


def _cells(x: Axis, y: Axis, values: Any) -> dict[str, Any]:
    """Mean of the trials in each cell of a grid; the plot fills empty cells."""
    (xs, columns), (ys, rows) = _bins(x), _bins(y)
    total, count = np.zeros((_CELLS, _CELLS)), np.zeros((_CELLS, _CELLS))
    np.add.at(total, (rows, columns), np.clip(values, -_MAX_DRAWN, _MAX_DRAWN))
    np.add.at(count, (rows, columns), 1)
    means = np.divide(total, count, out=np.full_like(total, np.nan), where=count > 0)
    z = [[None if math.isnan(v) else float(f"{v:.6g}") for v in row] for row in means]
    return {"x": xs, "y": ys, "z": z}


def _bins(axis: Axis) -> tuple[Any, Any]:
    """Coordinates of an axis's cells in ascending order, and the cell of each value."""
    values = np.array(axis.values)
    low, high = values.min(), values.max()
    places = ((values - low) / (high - low) * (_CELLS - 1)).round().astype(int)
    return np.linspace(low, high, _CELLS), places


def _range(values: Sequence[float], sign: int) -> tuple[float, float] | None:
    """From the best value to the worst tenth, if that tenth would compress the rest; else None."""
    if len(values) < 5 or max(map(abs, values)) > _MAX_DRAWN:
        return None
    costs = sign * np.array(values, dtype=float)
    best, cut, worst = costs.min(), float(np.quantile(costs, 0.9)), costs.max()
    if cut == best or worst - best < 4 * (cut - best):
        return None
    low, high = sorted((sign * best, sign * cut))
    return float(low), float(high)


def _limit_range(figure: go.Figure, values: Sequence[float], sign: int) -> go.Figure:
    if limits := _range(values, sign):
        low, high = limits
        margin = 0.05 * (high - low)
        figure.update_yaxes(range=[low - margin, high + margin])
        note = "the worst values are outside"
        where = {"x": 1, "y": 1, "xref": "paper", "yref": "paper", "yanchor": "bottom"}
        figure.add_annotation(text=note, showarrow=False, **where)
    return figure


def _number(line: TrialSummary) -> int:
    return line.record.number


def blank(x: str, y: str) -> go.Figure:
    """An empty figure in the style of the report; axis titles must be escaped."""
    return _styled(go.Figure()).update_xaxes(title=x).update_yaxes(title=y)


def _styled(figure: go.Figure) -> go.Figure:
    return figure.update_layout(
        template="none",
        height=420,
        margin={"l": 70, "r": 30, "t": 60, "b": 50},
        legend={"orientation": "h", "y": 1.0, "yanchor": "bottom"},
        font={"family": "system-ui, sans-serif"},
    )
