"""Show which trials of a population copied the weights of which others (PBT, PB2)."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from results.records.trial import InheritedWeights, TrialRecord
from results.report.plots.figures import INHERITED, TRACK, blank, text, whole_ticks
from results.report.sweep_data import SweepData

HEADER = ("at step", "trial", "weights of", "changed")


def inheritance_events(data: SweepData) -> list[tuple[TrialRecord, InheritedWeights]]:
    """Each time that a trial continued from another trial's weights, in order of steps."""
    found = [(one.record, event) for one in data.summaries for event in one.record.lineage]
    return sorted(found, key=lambda pair: (pair[1].step, pair[0].number))


def inheritance_rows(data: SweepData) -> list[Sequence[str]]:
    """A table row for each event, under `HEADER`."""
    return [
        (
            str(event.step),
            record.id,
            f"{event.donor} at step {event.donor_step}",
            changed_parameters(event),
        )
        for record, event in inheritance_events(data)
    ]


def changed_parameters(event: InheritedWeights) -> str:
    """`lr 0.1 → 0.08`: the parameters that changed at an event."""
    return ", ".join(
        f"{name} {_short(event.before.get(name))} → {_short(value)}"
        for name, value in event.after.items()
        if value != event.before.get(name)
    )


def inheritance_figure(data: SweepData) -> go.Figure | None:
    """A line for each trial, and an arrow from the donor for each event; None without events."""
    if not (events := inheritance_events(data)):
        return None
    figure = blank("step", "")
    members = sorted((one for one in data.summaries if one.step), key=lambda e: e.record.number)
    for member in reversed(members):
        row = text(member.record.id)
        style = {"color": TRACK, "width": 3}
        figure.add_scatter(
            x=[0, member.step], y=[row, row], mode="lines", line=style, hoverinfo="skip"
        )
    figure.add_scatter(
        x=[event.step for _, event in events],
        y=[text(record.id) for record, _ in events],
        mode="markers",
        marker={"color": INHERITED, "size": 8},
        text=[text(f"{record.id} from {e.donor}: {changed_parameters(e)}") for record, e in events],
        hovertemplate="%{text}<extra></extra>",
    )
    for record, event in events:
        head = {"x": event.step, "y": text(record.id), "xref": "x", "yref": "y"}
        tail = {"ax": event.donor_step, "ay": text(event.donor), "axref": "x", "ayref": "y"}
        style = {"showarrow": True, "arrowhead": 2, "arrowcolor": INHERITED, "standoff": 4}
        figure.add_annotation(**head, **tail, **style, text="")
    figure.update_yaxes(type="category")
    figure.update_xaxes(whole_ticks([0, *(m.step for m in members)]))
    return figure.update_layout(height=140 + 26 * len(members), showlegend=False)


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
