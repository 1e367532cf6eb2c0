"""Write the pages of `tune transfer` and of the coordinate check."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go

from results.analysis.scaling import LEVEL, Estimate, Optima, Rule, Transfer
from results.report.page import PageSection, section_messages, write_page
from results.report.plots.figures import BEST, SWEEPS, blank, text


def evidence(metric: str, found: Transfer) -> tuple[list[str], list[list[str]]]:
    """Header, and a row for each size and for the target: best values with their intervals."""
    rows = []
    for size, loss in zip(found.optima.sizes, found.optima.losses, strict=True):
        facts = str(len(size.losses)), f"{abs(loss):.4g}"
        best = (str(rule.best.get(str(size), "-")) for rule in found.rules)
        rows.append([*(f"{v:g}" for v in size.size.values()), *facts, *best])
    forecast = str(found.loss.loss) if found.loss else "-"
    values = (str(rule.value) for rule in found.rules)
    rows.append([*(f"{v:g}" for v in found.target.values()), "target", forecast, *values])
    return [*found.target, "trials", metric, *(rule.name for rule in found.rules)], rows


def write_transfer(title: str, metric: str, found: Transfer, target: Path) -> None:
    """Write the evidence of a transfer: a table, and plots of losses and optima."""
    header, rows = evidence(metric, found)
    lines = [*found.lines(metric), f"Intervals are of {LEVEL:.0%}."]
    sections = [PageSection("Evidence", lines, header=header, rows=rows)]
    for rule in found.rules:
        plot = _losses(metric, found.optima, rule)
        sections.append(PageSection(f"{metric} by {rule.name}", plot=plot))
        for axis in rule.exponents:
            plot = _blank(axis, rule.name, y_log=rule.log)
            sizes = [size for size in found.optima.sizes if str(size) in rule.best]
            _add(plot, [s.size[axis] for s in sizes], [*rule.best.values()], "measured", SWEEPS[0])
            _add(plot, [found.target[axis]], [rule.value], "predicted", BEST)
            sections.append(PageSection(f"Best {rule.name} by {axis}", plot=plot))
    if law := found.loss:
        plot, spent = _blank("compute (FLOP)", metric), [s.compute for s in found.optima.sizes]
        plot.add_scatter(x=spent, y=found.optima.losses, mode="markers", name="sizes")
        x = np.geomspace(min(filter(None, spent)), law.at, 50)
        plot.add_scatter(x=x, y=law.floor + law.scale * x**-law.exponent, name="law")
        _add(plot, [law.at], [law.loss], "target", BEST)
        sections.append(PageSection(f"{metric} by compute", plot=plot))
    write_page(target, title, [], section_messages(sections))


def write_coordinates(title: str, found: Sequence[Mapping[str, Any]], target: Path) -> None:
    """Write a coordinate check: of each activation axis, name, and the changes at the sizes."""
    plots: dict[str, go.Figure] = {}
    for one in found:
        plot = plots.setdefault(one["axis"], _blank(one["axis"], "change (RMS)"))
        plot.add_scatter(x=one["sizes"], y=one["changes"], name=text(one["name"]))
    sections = [PageSection(f"Activations by {axis}", plot=plot) for axis, plot in plots.items()]
    write_page(target, title, [], section_messages(sections))


def _losses(metric: str, optima: Optima, rule: Rule) -> go.Figure:
    """The loss of each trial by a parameter, and the optimum of each size."""
    plot = _blank(rule.name, metric, x_log=rule.log, y_log=False)
    for size, loss, colour in zip(optima.sizes, optima.losses, cycle(SWEEPS), strict=False):
        points, marker = size.points[:, rule.place], {"color": colour}
        x = np.exp(points) if rule.log else points
        plot.add_scatter(x=x, y=size.losses, mode="markers", name=str(size), marker=marker)
        if best := rule.best.get(str(size)):
            star = {"x": [best.value], "y": [loss], "marker": {**marker, "symbol": "star"}}
            plot.add_scatter(**star, mode="markers", name="optimum", showlegend=False)
    return plot


def _add(
    plot: go.Figure, x: Sequence[float], ys: Sequence[Estimate], name: str, colour: str
) -> None:
    """Add points with error bars."""
    up, down = [y.high - y.value for y in ys], [y.value - y.low for y in ys]
    bars, y = {"array": up, "arrayminus": down}, [y.value for y in ys]
    plot.add_scatter(x=x, y=y, error_y=bars, mode="markers", name=name, marker={"color": colour})


def _blank(x: str, y: str, *, x_log: bool = True, y_log: bool = True) -> go.Figure:
    plot = blank(text(x), text(y)).update_layout(showlegend=True)
    plot.update_xaxes(type="log" if x_log else "linear")
    return plot.update_yaxes(type="log" if y_log else "linear")
