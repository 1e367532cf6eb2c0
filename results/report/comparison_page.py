"""Write the page that compares several sweeps."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path

import plotly.graph_objects as go

from results.analysis.comparison import SweepSummary, differences, equal_costs, goal
from results.report.page import (
    PageSection,
    TimeUnit,
    number,
    section_messages,
    unit_for,
    write_page,
)
from results.report.plots.figures import SWEEPS, blank, text


def write_comparison(summaries: Sequence[SweepSummary], target: Path) -> None:
    """Write the comparison of sweeps as one page; see `results.analysis.comparison.compare`."""
    spec = summaries[0].spec
    names = [s.name for s in summaries]
    header, rows = table(summaries)
    differing = [
        [key, *(v if isinstance(v, str) else json.dumps(v, default=str) for v in values)]
        for key, values in differences(summaries).items()
    ]
    sections = [
        PageSection("Side by side", header=header, rows=rows),
        PageSection("Best value by cost", plot=progress(summaries)),
        PageSection("Differences of the sweep files", header=["key", *names], rows=differing),
    ]
    lead = [f"{goal(spec)}; cost in worker-{_unit(summaries).name} of all attempts"]
    write_page(target, " / ".join(names), lead, section_messages(sections))


def table(summaries: Sequence[SweepSummary]) -> tuple[list[str], list[list[str]]]:
    """Header, and a row per sweep: its result, and its best values at the costs of the others."""
    costs, names = equal_costs(summaries), [o.metric for o in summaries[0].spec.objectives]
    several, unit = len(names) > 1, _unit(summaries)
    cost = f"worker-{unit.name}"
    header = ["sweep", "trials", "winner", *names, *["on the front"] * several, cost]
    best = f"best {names[0]}" if several else "best"
    header += [f"{best} at {unit.format(c)} {unit.symbol}" for c in costs]
    rows = []
    for one in summaries:
        values: list[float | None] = [None] * len(names)
        if one.winner:
            values = [one.winner.value, *map(one.winner.values.get, names[1:])]
        row = [one.name, str(one.trials), one.winner.record.id if one.winner else "-"]
        row += [*map(number, values), *[str(one.front)] * several, unit.format(one.cost)]
        rows.append([*row, *(number(one.best_at(c)) for c in costs)])
    return header, rows


def progress(summaries: Sequence[SweepSummary]) -> go.Figure:
    """Best value so far over cost, a line per sweep."""
    unit = _unit(summaries)
    figure = blank(f"worker-{unit.name}", text(summaries[0].spec.metric))
    for one, colour in zip(summaries, cycle(SWEEPS), strict=False):
        xs = [c / unit.seconds for c, _ in one.progress]
        ys = [v for _, v in one.progress]
        if ys:  # extend the line to the end of the sweep
            xs, ys = [*xs, one.cost / unit.seconds], [*ys, ys[-1]]
        line = {"shape": "hv", "color": colour}
        figure.add_scatter(x=xs, y=ys, name=text(one.name), mode="lines", line=line)
    return figure.update_layout(showlegend=True)


def _unit(summaries: Sequence[SweepSummary]) -> TimeUnit:
    return unit_for(max(s.cost for s in summaries))
