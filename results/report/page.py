"""Write the report of a sweep: text, tables and plots in one HTML file that needs no network."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import plotly.graph_objects as go
from jinja2 import Environment, PackageLoader
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from results.analysis.cost import cost_shares
from results.analysis.leaderboard import TrialSummary
from results.records.trial import TrialState
from results.report import figures
from results.report.failure_classes import failure_classes
from results.report.inheritance import HEADER, inheritance_figure, inheritance_rows
from results.report.phases import phases_figure, phases_notes
from results.report.sweep_data import Importance, SweepData
from results.report.time_units import unit_for
from results.storage.atomic import write_atomic
from search_spaces.errors import first_few

_MAX_ROWS = 20
"""Trials in the table of the best."""


@dataclass(frozen=True)
class PageSection:
    """A part of the page: a title, and optionally lines of text, a plot and a table.

    Cells and lines are plain text; the template escapes them.
    """

    title: str
    text: Sequence[str] = ()
    plot: Markup | None = None
    header: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = field(default_factory=list)


def write_page(
    target: Path,
    title: str,
    lead: Sequence[str],
    winner: Sequence[str],
    sections: Sequence[PageSection],
    *,
    plotly: bool = True,
) -> None:
    """Write a page atomically; it loads nothing.

    Args:
        target: the file.
        title, lead, winner, sections: what it shows, from top to bottom.
        plotly: contains plotly's code, for the plots of `plot`.
    """
    environment = Environment(loader=PackageLoader("results.report", "."), autoescape=True)
    html = environment.get_template("page.html").render(
        title=title,
        lead=lead,
        winner=winner,
        sections=sections,
        plotly=Markup(get_plotlyjs()) if plotly else "",
    )
    write_atomic(target, html.encode())


def plot(figure: go.Figure | None) -> Markup | None:
    """A figure as HTML; plotly escapes `<`, `>` and `&` in its data."""
    if figure is None:
        return None
    config = {"displaylogo": False, "responsive": True}
    return Markup(figure.to_html(full_html=False, include_plotlyjs=False, config=config))


def write_report(data: SweepData, target: Path) -> None:
    """Write the report of a sweep."""
    write_page(target, data.spec.name, _lead(data), _winner(data), _sections(data))


def _lead(data: SweepData) -> list[str]:
    spec, states = data.spec, Counter(e.record.state for e in data.summaries)
    count = ", ".join(f"{n} {state.value}" for state, n in states.most_common())
    lines = [spec.description] if spec.description else []
    goals = ", ".join(f"{d.spec.mode} {d.spec.metric}" for d in data.objectives)
    lines.append(f"{spec.trainable}: {goals}, by {spec.search.name}")
    lines.append(f"{len(data.summaries)} trials: {count or 'none yet'}")
    lines.append(f"spent {cost_shares((e.record for e in data.summaries), spec.prices)}")
    return lines


def _winner(data: SweepData) -> list[str]:
    """Which trial won, why, and how reliable that is."""
    if data.selection is None:
        return []
    first = data.selection.line
    params = ", ".join(f"{k} = {setting(v)}" for k, v in first.record.params.items())
    lines = [
        f"Winner: {first.record.id}, {_values(data, first)} at step {first.step} ({params}).",
        f"Why: {data.selection.why}.",
    ]
    others = [e for e in data.ranked if e.record.id != first.record.id]
    if others and not data.others:
        gap = abs((first.value or 0.0) - (others[0].value or 0.0))
        rival = others[0].record.id
        difference = f"a difference of {gap:.3g}" if gap else "the same value"
        lines.append(f"Second is {rival} with {number(others[0].value)}: {difference}.")
    if not data.selection.confirmed:
        lines.append(
            f"The best of many noisy values is biased: measure it again with "
            f"tune best {data.spec.name} --confirm 3."
        )
    return lines


def _sections(data: SweepData) -> list[PageSection]:
    at = ", ".join(f"{r:g}" for r in data.rung_steps)
    notes = [f"Dotted lines: the rungs, at steps {at}."] if at else []
    if len(data.summaries) > figures.MAX_CURVES:
        notes.append(f"The {figures.MAX_CURVES} best of {len(data.summaries)} trials are drawn.")
    found = [
        *(section for one in data.objectives for section in _objective(one, notes)),
        PageSection("Pareto front", plot=plot(figures.pareto_front(data))),
        _inheritance(data),
        _confirmation(data),
        _cost(data),
        PageSection("Where the time goes", phases_notes(data), plot(phases_figure(data))),
        _failed(data),
        _table(data),
    ]
    return [s for s in found if s.plot or s.rows]


def _objective(data: SweepData, notes: Sequence[str]) -> list[PageSection]:
    """The plots of one objective; the titles name the metric if there are several."""
    of = f": {data.spec.metric}" if data.is_one_of_several else ""
    importance_notes = _importance_notes(data.importances)
    return [
        PageSection(f"Optimisation history{of}", plot=plot(figures.history(data))),
        PageSection(f"Learning curves{of}", notes, plot(figures.curves(data))),
        PageSection(f"Parallel coordinates{of}", plot=plot(figures.parallel_coordinates(data))),
        PageSection(f"Parameter importance{of}", importance_notes, plot(figures.importances(data))),
        PageSection(f"The two most important parameters{of}", plot=plot(figures.contour(data))),
    ]


def _values(data: SweepData, line: TrialSummary) -> str:
    """The value of every objective, with its name."""
    others = [(d.spec.metric, line.values.get(d.spec.metric)) for d in data.others]
    pairs = [(data.spec.metric, line.value), *others]
    return ", ".join(f"{name} {number(value)}" for name, value in pairs)


def _importance_notes(importances: Sequence[Importance]) -> list[str]:
    if not importances:
        return []
    one = importances[0]
    return [
        f"Computed from the metric at step {one.step}, which {one.trials} trials reached: "
        "values at other steps are not comparable.",
    ]


def _confirmation(data: SweepData) -> PageSection:
    made = data.confirmation
    if made is None:
        return PageSection("Confirmation")
    text = [f"Measured again {made.where}, {len(made.seeds) or 'no'} fresh seeds each."]
    for name, amount in made.optimism.items():
        off = "better" if amount > 0 else "worse"
        text.append(
            f"The search's best {name} was {off} by {number(abs(amount))} than its trial "
            "is with fresh seeds on the same split."
        )
    rows = [
        [m.trial, name, *map(number, (of.search, of.mean, of.half_width, len(of.test)))]
        for m in made.trials
        for name, of in m.series.items()
    ]
    header = ["trial", "objective", "in the search", f"mean {made.where}", "± (95 %)", "values"]
    return PageSection("Confirmation", text, header=header, rows=rows)


def _inheritance(data: SweepData) -> PageSection:
    notes = ["An arrow points from the trial whose weights were copied to the one that continued."]
    figure, rows = inheritance_figure(data), inheritance_rows(data)
    return PageSection("Inherited weights", notes, plot(figure), HEADER, rows)


def _cost(data: SweepData) -> PageSection:
    spent: Counter[TrialState] = Counter()
    for line in data.summaries:
        spent[line.record.state] += round(line.record.worker_seconds)
    unit = unit_for(sum(spent.values()))
    parts = ", ".join(f"{unit.format(s)} on {state.value}" for state, s in spent.most_common())
    attempts = [a for e in data.summaries for a in e.record.attempts]
    cpu = unit.format(sum(a.held_seconds * a.cpus for a in attempts))
    gpu = unit.format(sum(a.held_seconds * a.gpus for a in attempts))
    whole = unit.format(sum(spent.values()))
    notes = [f"Worker-{unit.name}: {whole} in total; {parts}."] if spent else []
    if (cpu, gpu) != ("0", "0"):
        notes.append(f"CPU-{unit.name}: {cpu}; GPU-{unit.name}: {gpu}.")
    return PageSection("Time and cost", notes, plot(figures.costs(data)) if spent else None)


def _failed(data: SweepData) -> PageSection:
    rows = [
        [f.name, str(f.attempts), first_few(f.trials), ", ".join(f.remedies) or "-", f.example]
        for f in failure_classes([e.record for e in data.summaries])
    ]
    header = ["class", "attempts", "trials", "treated as", "for example"]
    return PageSection("Failures", header=header, rows=rows)


def _table(data: SweepData) -> PageSection:
    names = list(dict.fromkeys(name for e in data.summaries for name in e.record.params))
    others = [one.spec.metric for one in data.others]
    spread = ["mean ± 95 %"] * any(e.mean is not None for e in data.summaries)
    header = ["trial", "state", data.spec.metric, *spread, *others, "step", "seconds"]
    header += [*names, "why it ended"]
    rows = [
        [
            e.record.id,
            e.record.state.value,
            number(e.value),
            *[_mean(e)] * len(spread),
            *(number(e.values.get(name)) for name in others),
            str(e.step),
            f"{e.record.seconds:.0f}",
            *(setting(e.record.params[n]) if n in e.record.params else "" for n in names),
            e.record.reason,
        ]
        for e in data.summaries[:_MAX_ROWS]
    ]
    return PageSection(
        f"The best {len(rows)} of {len(data.summaries)} trials", header=header, rows=rows
    )


def _mean(line: TrialSummary) -> str:
    """Mean over the seeds of a trial's configuration, with its 95 % t-interval."""
    if line.mean is None:
        return ""
    spread = "" if line.half_width is None else f" ± {line.half_width:.2g}"
    return f"{number(line.mean)}{spread} of {line.seeds}"


def setting(value: object) -> str:
    """A parameter's value as in YAML; floats with five digits."""
    return number(value) if isinstance(value, float | str) else json.dumps(value, default=str)


def number(value: object) -> str:
    """Five significant digits for floats; `-` for None."""
    if value is None:
        return "-"
    return f"{value:.5g}" if isinstance(value, float) else str(value)
