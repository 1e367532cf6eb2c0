"""The trials of a sweep as its pages have them: a row each for charts and table, and details."""

from __future__ import annotations

import json
import math
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from results.analysis.cost import total_cost
from results.analysis.leaderboard import TrialSummary
from results.paths import SweepPaths
from results.records.notes import Note
from results.records.trial import Attempt, Report, TrialRecord
from results.records.worker_samples import read_samples
from results.report.page import number
from results.report.plots.rungs import changed_parameters
from results.report.sweep_data import SweepData
from search_spaces.files import read_regular
from search_spaces.nested import flattened
from search_spaces.redaction import redact, redacted

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
    return [
        _row(data, place, line, thinned(reports.get(line.record.id, []), points))
        for place, line in enumerate(data.summaries)
    ]


def _row(
    data: SweepData, place: int, line: TrialSummary, reports: Sequence[Report]
) -> dict[str, Any]:
    record, note = line.record, data.notes.get(line.record.id, Note())
    prices = data.spec.prices
    values = {data.spec.metric: line.value, **line.values} | {data.spec.metric: line.value}
    names = dict.fromkeys(name for report in reports for name in report.metrics)
    return {
        "id": record.id,
        "number": record.number,
        "rank": place,
        "state": record.state.value,
        "reason": record.reason,
        "eligible": record.eligible,
        "front": record.id in data.front,
        "step": line.step,
        "seconds": round(record.seconds, 1),
        "cost": round(total_cost([record], prices).cost, 4) if prices else None,
        "mean": "" if line.mean is None else f"{number(line.mean)}{line.spread}",
        "values": {name: short_number(value) for name, value in values.items()},
        "params": {name: short_number(value) for name, value in record.params.items()},
        "steps": [report.step for report in reports],
        "curves": {
            name: [short_number(report.metrics.get(name)) for report in reports] for name in names
        },
        "note": note.text,
        "tags": list(note.tags),
    }


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


_MAX_DETAILED = 100
"""Trials of which a written page has usage and log: the best, and those that failed."""
_USAGE = ("system/cpu", "system/gpu", "system/memory")
_MAX_SAMPLES, _LOG_LINES, _LOG_BYTES = 60, 30, 2**13


def all_details(paths: SweepPaths, data: SweepData) -> dict[str, Any]:
    """By trial, for a written page."""
    lines = [e.record for e in data.summaries]
    full = {r.id for r in lines[:_MAX_DETAILED]}
    full |= {r.id for r in [r for r in lines if r.state.value == "failed"][:_MAX_DETAILED]}
    return {r.id: trial_details(paths, r, full=r.id in full) for r in lines}


def trial_details(paths: SweepPaths, record: TrialRecord, *, full: bool = True) -> dict[str, Any]:
    """The details of a trial that its row lacks; usage and log only if they are asked for."""
    files = paths.trial(record.id)
    steps = files.checkpoint_steps()
    fixed = {k: v for k, v in flattened(record.config).items() if k not in record.params}
    config = redacted({**fixed, **flattened(record.adjusted)})
    return {
        "config": json.loads(json.dumps(config, default=str), parse_constant=str),
        "adjusted": list(flattened(record.adjusted)),
        "attempts": [_attempt(attempt) for attempt in record.attempts],
        "checkpoints": f"steps {', '.join(map(str, steps))}" if steps else "",
        "lineage": [[e.step, e.donor, e.donor_step, changed_parameters(e)] for e in record.lineage],
        "usage": _usage(paths, record) if full else {},
        "log": list(_log(paths, record)) if full else None,
    }


def _attempt(attempt: Attempt) -> list[str]:
    started = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(attempt.started))
    seconds = f"{attempt.seconds:.1f}" if attempt.ended else "has not ended"
    remedy = f"{attempt.remedy}: " if attempt.remedy else ""
    how = f"{remedy}{attempt.error}" if attempt.error else ""
    words = [part for part in (how, attempt.where, attempt.leak) if part]
    return [str(attempt.number), started, seconds, attempt.workers_and_layout, "; ".join(words)]


def _usage(paths: SweepPaths, record: TrialRecord) -> dict[str, dict[str, Any]]:
    """Values of the processes by name and rank: seconds since the start, and the values."""
    found: dict[str, dict[int, list[tuple[float, float]]]] = defaultdict(lambda: defaultdict(list))
    for attempt in record.attempts:
        for sample in read_samples(paths.trial(record.id), attempt.number):
            at = round(sample.time - record.attempts[0].started, 1)
            for name, value in sample.values.items():
                if name.startswith(_USAGE):
                    short = name.removeprefix("system/").replace("_", " ")
                    found[short][sample.rank].append((at, short_number(value)))
    return {
        name: {
            str(rank): list(zip(*thinned(points, _MAX_SAMPLES), strict=True))
            for rank, points in ranks.items()
        }
        for name, ranks in found.items()
    }


def _log(paths: SweepPaths, record: TrialRecord) -> Iterator[str]:
    """The last lines of each rank of the newest attempt."""
    for rank, log in paths.trial(record.id).rank_logs():
        data = read_regular(log, max(0, log.stat().st_size - _LOG_BYTES), _LOG_BYTES)
        for line in data.decode(errors="replace").splitlines()[-_LOG_LINES:]:
            yield f"rank {rank}: {redact(line)}"
