"""What happened in a sweep, and when: starts, rungs, promotions, inherited weights, ends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from results.analysis.pareto import cost
from results.records.trial import InheritedWeights, Report, TrialRecord, TrialState
from results.report.plots.figures import INHERITED, STATES, TRACK, WENT_ON, blank, text, whole_ticks
from results.report.sweep_data import SweepData


@dataclass(frozen=True, order=True)
class SweepEvent:
    """One line of a sweep's history. `time` is Unix seconds."""

    time: float
    trial: str
    text: str


def timeline(data: SweepData) -> list[SweepEvent]:
    """The history of a sweep, oldest first."""
    found = [*_rung_events(data)]
    for record, reports in data.trials:
        found += _attempts(record)
        found += _promotions(data, record, reports)
        if record.state.finished or record.state is TrialState.PAUSED:
            why = f"{record.state}: {record.reason}" if record.reason else str(record.state)
            last = record.attempts[-1].ended if record.attempts else None
            ended = last or (reports[-1].time if reports else record.created)
            found.append(SweepEvent(ended, record.id, why))
    return sorted(found)


def rungs_figure(data: SweepData) -> go.Figure | None:
    """For each rung, a stacked bar: what became of the trials that reached it; None without any."""
    counts = {rung: Counter(_rung_outcomes(data, rung)) for rung in data.rung_steps}
    counts = {rung: outcomes for rung, outcomes in counts.items() if outcomes}
    if not counts:
        return None
    figure = blank("rung (step)", "trials")
    colours = {"went on": WENT_ON, **{state.value: colour for state, colour in STATES.items()}}
    for outcome, colour in colours.items():
        heights = [outcomes[outcome] for outcomes in counts.values()]
        if any(heights):
            x, marker = [f"{rung:g}" for rung in counts], {"color": colour}
            figure.add_bar(x=x, y=heights, name=outcome, marker=marker, width=0.6)
    figure.update_xaxes(type="category")
    figure.update_yaxes(whole_ticks([0, max(sum(one.values()) for one in counts.values())]))
    return figure.update_layout(barmode="stack", height=320)


def _rung_outcomes(data: SweepData, rung: float) -> Iterator[str]:
    for record, reports in data.trials:
        if reports and data.clock(reports[-1]) > rung:
            yield "went on"
        elif _at(data, reports, rung) is not None:
            yield record.state.value


def _rung_events(data: SweepData) -> Iterator[SweepEvent]:
    """Each trial at each rung, with its place among those that were there before."""
    metric, mode = data.spec.metric, data.spec.mode
    for rung in data.rung_steps:
        at = [
            (r, record.id) for record, of in data.trials if (r := _at(data, of, rung)) is not None
        ]
        earlier: list[float] = []
        for report, trial in sorted(at, key=lambda pair: pair[0].time):
            if (value := report.metrics.get(metric)) is None:
                continue
            earlier.append(cost(value, mode))
            place = sum(other < earlier[-1] for other in earlier) + 1
            text = f"reached rung {rung:g} with {value:.5g}: place {place} of {len(earlier)}"
            yield SweepEvent(report.time, trial, text)


def _promotions(
    data: SweepData, record: TrialRecord, reports: Sequence[Report]
) -> Iterator[SweepEvent]:
    for rung in data.rung_steps:
        after = next((r for r in reports if data.clock(r) > rung), None)
        if after is not None and _at(data, reports, rung) is not None:
            yield SweepEvent(after.time, record.id, f"promoted: goes on above rung {rung:g}")


def _attempts(record: TrialRecord) -> Iterator[SweepEvent]:
    for attempt in record.attempts:
        again = f" again (attempt {attempt.number})" if attempt.number > 1 else ""
        yield SweepEvent(attempt.started, record.id, f"started{again}")
        if attempt.error and attempt.ended:
            remedy = f", treated as {attempt.remedy}" if attempt.remedy else ""
            yield SweepEvent(attempt.ended, record.id, f"failed: {attempt.error}{remedy}")


def _at(data: SweepData, reports: Sequence[Report], rung: float) -> Report | None:
    """The first report at a rung."""
    return next((r for r in reports if data.clock(r) >= rung), None)


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
