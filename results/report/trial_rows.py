"""The trials of a sweep as its pages have them: a JSON object each, for charts and table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from results.analysis.cost import total_cost
from results.analysis.leaderboard import TrialSummary
from results.analysis.pareto import non_dominated
from results.analysis.selection import selection_objectives
from results.records.notes import Note
from results.records.trial import Report
from results.report.page import number
from results.report.sweep_data import SweepData

MAX_POINTS = 100
"""Of one curve."""
_MAX_VALUES = 400_000
"""Of all curves together, so that a large sweep gives no large page."""
_MIN_POINTS = 8


def points_per_curve(data: SweepData) -> int:
    """How many points of each curve a page has: fewer in a sweep of many trials and metrics."""
    values = sum(
        min(len(reports), MAX_POINTS) * len(reports[-1].metrics)
        for _, reports in data.trials
        if reports
    )
    return max(_MIN_POINTS, MAX_POINTS * min(_MAX_VALUES, values) // max(1, values))


def trial_rows(data: SweepData) -> list[dict[str, Any]]:
    """A row per trial, best first.

    Numbers have six digits; a value that is not finite is null. `curves` has the values of each
    metric at `steps`.
    """
    reports, points = {r.id: found for r, found in data.trials}, points_per_curve(data)
    front = _front(data)
    return [
        _row(data, place, line, thinned(reports.get(line.record.id, []), points), front)
        for place, line in enumerate(data.summaries)
    ]


def _row(
    data: SweepData, place: int, line: TrialSummary, reports: Sequence[Report], front: set[str]
) -> dict[str, Any]:
    record, note = line.record, data.notes.get(line.record.id, Note())
    prices = data.spec.prices
    values = {data.spec.metric: line.value, **{k: v for k, v in line.values.items()}}
    values[data.spec.metric] = line.value
    names = dict.fromkeys(name for report in reports for name in report.metrics)
    return {
        "id": record.id,
        "number": record.number,
        "rank": place,
        "state": record.state.value,
        "reason": record.reason,
        "eligible": record.eligible,
        "front": record.id in front,
        "step": line.step,
        "seconds": round(record.seconds, 1),
        "cost": round(total_cost([record], prices).cost, 4) if prices else None,
        "mean": mean_text(line),
        "values": {name: short_number(value) for name, value in values.items()},
        "params": {name: short_number(value) for name, value in record.params.items()},
        "steps": [report.step for report in reports],
        "curves": {
            name: [short_number(report.metrics.get(name)) for report in reports] for name in names
        },
        "note": note.text,
        "tags": list(note.tags),
    }


def _front(data: SweepData) -> set[str]:
    """The trials on the Pareto front; none with a single objective."""
    if not data.points:
        return set()
    modes = selection_objectives(data.spec, data.spec.select)
    trials = list(data.points)
    return {trials[i] for i in non_dominated(list(data.points.values()), modes)}


def mean_text(line: TrialSummary) -> str:
    """Mean over the seeds of a trial's configuration, with its 95 % t-interval."""
    if line.mean is None:
        return ""
    spread = "" if line.half_width is None else f" ± {line.half_width:.2g}"
    return f"{number(line.mean)}{spread} of {line.seeds}"


def thinned(found: Sequence[Any], most: int = MAX_POINTS) -> Sequence[Any]:
    """At most so many of a sequence, evenly, including both ends."""
    if len(found) <= most:
        return found
    return [found[round(i * (len(found) - 1) / (most - 1))] for i in range(most)]


def short_number(value: Any) -> Any:
    """A float with six digits; null if it is not finite; anything else as it is."""
    if not isinstance(value, float):
        return value
    return float(f"{value:.6g}") if math.isfinite(value) else None
