"""Write the pages of `tune transfer` and of the coordinate check."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from pathlib import Path

import numpy as np
import plotly.graph_objects as go

from results.analysis.scaling.optimum import LEVEL, Interval
from results.analysis.scaling.rules import Rule, Transfer
from results.report.page import PageSection, section_messages, write_page
from results.report.plots.axes import text
from results.report.plots.colours import BEST, SWEEPS
from results.report.plots.figures import blank


def evidence(metric: str, found: Transfer) -> tuple[list[str], list[list[str]]]:
    """Header, and a row for each size and for the target: best values with their intervals."""
    rules, rows = found.rules.values(), []
    for size, loss in zip(found.optima.sizes, found.optima.losses, strict=True):
        best = [str(rule.best.get(size, "-")) for rule in rules]
        count = str(len(size.losses))
        rows.append([*(f"{v:g}" for v in size.size.values()), count, f"{abs(loss):.4g}", *best])
    forecast = "-" if found.loss is None else str(found.loss.loss)
    values = [str(rule.value) for rule in rules]
    rows.append([*(f"{v:g}" for v in found.target.values()), "target", forecast, *values])
    return [*found.target, "trials", metric, *(rule.name for rule in rules)], rows


def write_transfer(title: str, metric: str, found: Transfer, target: Path) -> None:
    """Write the evidence of a transfer: a table, and plots of losses and optima."""
    header, rows = evidence(metric, found)
    lines = [*(f"{rule.name}: {rule}." for rule in found.rules.values()), *found.notes]
    lines.append(f"Intervals are of {LEVEL:.0%}.")
    sections = [PageSection("Evidence", lines, header=header, rows=rows)]
    for place, rule in found.rules.items():
        plot = _losses(metric, found, place, rule)
        sections.append(PageSection(f"{metric} by {rule.name}", plot=plot))
        for axis in rule.exponents:
            figure = _blank(axis, rule.name, log=True)
            if rule.log:
                figure.update_yaxes(type="log")
            sizes = [size.size[axis] for size in rule.best]
            _add(figure, sizes, list(rule.best.values()), "measured", SWEEPS[0])
            _add(figure, [found.target[axis]], [rule.value], "predicted", BEST)
            sections.append(PageSection(f"Best {rule.name} by {axis}", plot=figure))
    if (law := found.loss) is not None:
        figure = _blank("compute (FLOP)", metric, log=True)
        spent = [size.compute or law.unit for size in found.optima.sizes]
        figure.add_scatter(x=spent, y=found.optima.losses, mode="markers", name="sizes")
        x = np.geomspace(min(spent), law.at, 50)
        figure.add_scatter(x=x, y=law.curve(x), mode="lines", name="law")
        _add(figure, [law.at], [law.loss], "target", BEST)
        sections.append(PageSection(f"{metric} by compute", [str(law)], figure))
    write_page(target, title, [], section_messages(sections))


def write_coordinates(
    title: str, lines: Sequence[tuple[str, str, Sequence[int], Sequence[float]]], target: Path
) -> None:
    """Write the page of a coordinate check.

    Args:
        title: of the page.
        lines: axis, name, sizes, and the change of an activation at each.
        target: the file.
    """
    figures: dict[str, go.Figure] = {}
    for axis, name, sizes, changes in lines:
        if axis not in figures:
            figures[axis] = _blank(axis, "change (RMS)", log=True).update_yaxes(type="log")
        figures[axis].add_scatter(x=sizes, y=changes, name=text(name))
    sections = [PageSection(f"Activations by {axis}", plot=plot) for axis, plot in figures.items()]
    write_page(target, title, [], section_messages(sections))


def _losses(metric: str, found: Transfer, place: int, rule: Rule) -> go.Figure:
    """The loss of each trial by a parameter, and the optimum of each size."""
    figure = _blank(rule.name, metric, log=rule.log)
    minima = zip(found.optima.sizes, found.optima.losses, cycle(SWEEPS), strict=False)
    for size, loss, colour in minima:
        x = np.exp(size.points[:, place]) if rule.log else size.points[:, place]
        marker = {"color": colour}
        figure.add_scatter(x=x, y=size.losses, mode="markers", name=str(size), marker=marker)
        if size in rule.best:
            at = {"x": [rule.best[size].value], "y": [loss], "showlegend": False}
            figure.add_scatter(
                **at, mode="markers", marker={**marker, "symbol": "star", "size": 14}
            )
    return figure


def _add(
    figure: go.Figure, x: Sequence[float], y: Sequence[Interval], name: str, colour: str
) -> None:
    """Add points with error bars."""
    up, down = [one.high - one.value for one in y], [one.value - one.low for one in y]
    bars = {"array": up, "arrayminus": down, "color": colour}
    at = {"x": x, "y": [one.value for one in y], "error_y": bars}
    figure.add_scatter(**at, mode="markers", name=name, marker={"color": colour})


def _blank(x: str, y: str, log: bool) -> go.Figure:
    figure = blank(text(x), text(y)).update_layout(showlegend=True)
    return figure.update_xaxes(type="log" if log else "linear")
