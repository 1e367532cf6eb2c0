"""Write the report of a pipeline: its stages as a graph, what flowed, cost and metrics."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from markupsafe import Markup

from results.report.page import (
    PageSection,
    number,
    section_messages,
    template,
    unit_for,
    write_page,
)
from results.report.pipeline_data import PipelineData

_ROWS = 5
"""Rows of the grid for each stage: four for its box, one for the gap below."""


@dataclass(frozen=True)
class Arc:
    """An arrow beside the boxes, from a stage to one that is not the next.

    Attributes:
        start, end: first row of the grid, and the row after the last one.
        lane: column beside the boxes, from 1.
        title: shown when a pointer is over it.
    """

    start: int
    end: int
    lane: int
    title: str


def write_pipeline_report(data: PipelineData, target: Path) -> None:
    """Write the page; it links to the reports of the stages that exist, relative to itself."""
    done = sum(line.state == "complete" for line in data.stages)
    lead = [data.description] if data.description else []
    seconds = sum(line.seconds or 0.0 for line in data.stages)
    unit = unit_for(seconds)
    whole = f"; {unit.format(seconds)} {unit.name} in all" if seconds else ""
    lead.append(f"{done} of {len(data.stages)} stages complete{whole}")
    sections = [PageSection("Stages", plot=_graph(data, target)), _table(data)]
    write_page(target, data.name, lead, section_messages(sections), plotly=False)


_HEADER = ("stage", "kind", "state", "time", "CPU-hours", "GPU-hours", "cost", "trials", "metric")
_PRICES = ("cpu_hours", "gpu_hours", "cost")


def _table(data: PipelineData) -> PageSection:
    """A row for each stage, without the columns that are empty."""
    keys = ("seconds", "trials", *_PRICES)
    seconds, trials, *sums = (sum(getattr(s, key) or 0 for s in data.stages) for key in keys)
    total = ["in all", "", "", _time(seconds), *map(_amount, sums), str(trials), ""]
    rows = []
    for line in data.stages:
        metrics = ", ".join(f"{name} {number(value)}" for name, value in line.metrics.items())
        spent = [_amount(getattr(line, key)) for key in _PRICES]
        count = "" if line.trials is None else str(line.trials)
        rows.append([line.name, line.kind, line.state, _time(line.seconds), *spent, count, metrics])
    rows.append(total)
    used = [index for index in range(len(_HEADER)) if any(row[index] for row in rows)]
    shown = [[row[index] for index in used] for row in rows]
    return PageSection("Cost and metrics", header=[_HEADER[i] for i in used], rows=shown)


def _amount(value: float) -> str:
    return f"{value:.3g}" if value else ""


def _time(seconds: float | None) -> str:
    if seconds is None:
        return ""
    unit = unit_for(seconds)
    return f"{unit.format(seconds)}\N{NO-BREAK SPACE}{unit.symbol}"


def _graph(data: PipelineData, target: Path) -> Markup:
    names = [line.name for line in data.stages]
    arcs = list(arcs_of({line.name: [f.source for f in line.flows] for line in data.stages}))
    whole = sum(line.seconds or 0.0 for line in data.stages) or 1.0
    boxes = []
    for index, line in enumerate(data.stages):
        link = ""
        if line.sweep is not None and line.sweep.report.is_file():
            path = os.path.relpath(line.sweep.report, target.parent)
            link = quote(Path(path).as_posix())
        trials = "" if line.trials is None else f"{line.trials} trials"
        units = zip(_PRICES, ("{} CPU-hours", "{} GPU-hours", "cost {}"), strict=True)
        spent = [text.format(_amount(v)) for key, text in units if (v := getattr(line, key))]
        box = {
            "line": line,
            "row": _ROWS * index + 1,
            "flows": [f for f in line.flows if f.what],
            "follows": index > 0 and names[index - 1] in [f.source for f in line.flows],
            "facts": [part for part in (trials, _time(line.seconds), *spent) if part],
            "share": 100 * (line.seconds or 0.0) / whole,
            "link": link,
        }
        boxes.append(box)
    lanes = max((arc.lane for arc in arcs), default=0)
    return Markup(template("pipeline.html").render(boxes=boxes, arcs=arcs, lanes=lanes))


def arcs_of(sources: Mapping[str, list[str]]) -> Iterator[Arc]:
    """The arrows between stages that do not lie directly one below the other.

    Those from one stage share a lane: the first in which no other line is at the same height.

    Args:
        sources: stage → those that it needs; in the order of the boxes.
    """
    place = {name: index for index, name in enumerate(sources)}
    heads: dict[str, list[str]] = {name: [] for name in sources}
    for name, needed in sources.items():
        for source in needed:
            if place[name] - place[source] != 1:
                heads[source].append(name)
    lanes: list[list[tuple[int, int]]] = []
    longest = {one: place[names[-1]] - place[one] for one, names in heads.items() if names}
    for source in sorted(longest, key=longest.__getitem__):
        start, ends = _ROWS * place[source] + 4, [_ROWS * place[one] + 2 for one in heads[source]]
        lane = _free_lane(lanes, start, max(ends))
        for end, name in zip(ends, heads[source], strict=True):
            yield Arc(start, end, lane + 1, f"{source} → {name}")


def _free_lane(lanes: list[list[tuple[int, int]]], start: int, end: int) -> int:
    """The first lane without a line between two rows, or a new one; it gets this line."""
    free = (all(end <= a or b <= start for a, b in lane) for lane in lanes)
    found = next((index for index, is_free in enumerate(free) if is_free), len(lanes))
    lanes += [[]] if found == len(lanes) else []
    lanes[found] = [*lanes[found], (start, end)]
    return found
