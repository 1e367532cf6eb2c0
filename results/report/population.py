"""Who took over whose weights in a population, and with which parameters each trial went on."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from results.records.trial import InheritedWeights, TrialRecord
from results.report.axes import text
from results.report.figures import blank
from results.report.sweep_data import SweepData

HEADER = ("at step", "trial", "weights of", "changed")


def takeovers(data: SweepData) -> list[tuple[TrialRecord, InheritedWeights]]:
    """Every time that a trial went on from another's weights, in the order of steps."""
    found = [(line.record, taken) for line in data.lines for taken in line.record.lineage]
    return sorted(found, key=lambda pair: (pair[1].step, pair[0].number))


def rows(data: SweepData) -> list[Sequence[str]]:
    """A line of the table for each, under `HEADER`."""
    return [
        (str(taken.step), record.id, f"{taken.donor} at step {taken.donor_step}", changes(taken))
        for record, taken in takeovers(data)
    ]


def changes(taken: InheritedWeights) -> str:
    """`lr 0.1 → 0.08`: the parameters that differ from the trial's own before."""
    return ", ".join(
        f"{name} {_short(taken.before.get(name))} → {_short(value)}"
        for name, value in taken.after.items()
        if value != taken.before.get(name)
    )


def lineage(data: SweepData) -> go.Figure | None:
    """A line for each trial over its steps, and an arrow from donor to heir; None without any."""
    if not (taken := takeovers(data)):
        return None
    figure = blank("step", "")
    members = sorted((line for line in data.lines if line.step), key=lambda e: e.record.number)
    for line in reversed(members):
        at = text(line.record.id)
        style = {"color": "#c8d0d4", "width": 3}
        figure.add_scatter(x=[0, line.step], y=[at, at], mode="lines", line=style, hoverinfo="skip")
    figure.add_scatter(
        x=[i.step for _, i in taken],
        y=[text(record.id) for record, _ in taken],
        mode="markers",
        marker={"color": "#1a7f5a", "size": 8},
        text=[text(f"{record.id} from {i.donor}: {changes(i)}") for record, i in taken],
        hovertemplate="%{text}<extra></extra>",
    )
    for record, i in taken:
        _arrow(figure, (i.donor_step, text(i.donor)), (i.step, text(record.id)))
    figure.update_yaxes(type="category")
    return figure.update_layout(height=140 + 26 * len(members), showlegend=False)


def _arrow(figure: go.Figure, tail: tuple[int, str], head: tuple[int, str]) -> None:
    refs = {"xref": "x", "yref": "y", "axref": "x", "ayref": "y"}
    style = {"showarrow": True, "arrowhead": 2, "arrowcolor": "#1a7f5a", "standoff": 4, "text": ""}
    figure.add_annotation(x=head[0], y=head[1], ax=tail[0], ay=tail[1], **refs, **style)


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
