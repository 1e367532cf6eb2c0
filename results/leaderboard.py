"""Trials in order, read from any sweep folder: no Ray, no driver.

A trial is ranked by its *last* reported value, not its best one: the checkpoint that can be
averaged, exported or continued is of the last step, so the best value may be of weights that
no longer exist.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from results.paths import SweepPaths
from results.records import Report, TrialRecord, TrialState, read_reports, read_trials
from search_spaces.load import load_sweep


@dataclass(frozen=True)
class TrialSummary:
    """One line of the leaderboard. Reports beyond the record's `end_step` do not count.

    Attributes:
        record: of the trial.
        value: the metric at the newest report that has it; None when there is none, or when it
            is not finite (the model diverged).
        best_value: the best finite value by mode, at `best_step`; None when there is none.
        step: of the newest report; 0 without reports.
        reports: how many there are.
    """

    record: TrialRecord
    value: float | None
    best_value: float | None
    best_step: int | None
    step: int
    reports: int


def read_goal(paths: SweepPaths) -> tuple[str, str]:
    """The metric's name and its mode, `min` or `max`, from the frozen `sweep.yaml`.

    Raises:
        UserError: the file is missing or not a sweep.
    """
    spec = load_sweep(paths.spec).spec
    return spec.metric, str(spec.mode)


def summarize(
    record: TrialRecord, reports: Sequence[Report], metric: str, mode: str
) -> TrialSummary:
    """One trial's line, from its reports by ascending step."""
    points = [(r.metrics[metric], r.step) for r in reports if metric in r.metrics]
    finite = [(v, s) for v, s in points if math.isfinite(v)]
    # the first step that reached the best value, as a reader of the curve would say
    best = min(finite, key=lambda p: (_cost(p[0], mode), p[1]), default=(None, None))
    last = points[-1][0] if points and math.isfinite(points[-1][0]) else None
    return TrialSummary(
        record=record,
        value=last,
        best_value=best[0],
        best_step=best[1],
        step=reports[-1].step if reports else 0,
        reports=len(reports),
    )


def summaries(paths: SweepPaths, metric: str, mode: str) -> list[TrialSummary]:
    """Every trial, in the order of `order`."""
    lines = [
        summarize(record, read_reports(paths.trial(record.id), record.end_step), metric, mode)
        for record in read_trials(paths)
    ]
    return order(lines, mode)


def order(lines: Sequence[TrialSummary], mode: str) -> list[TrialSummary]:
    """Best first; then trials that break an outcome constraint, then failed ones, then those
    without a value; ties by id.
    """
    return sorted(lines, key=lambda line: _rank(line, mode))


def _cost(value: float, mode: str) -> float:
    return -value if mode == "max" else value


def _rank(line: TrialSummary, mode: str) -> tuple[bool, bool, bool, float, str]:
    cost = 0.0 if line.value is None else _cost(line.value, mode)
    record = line.record
    failed = record.state is TrialState.FAILED
    return line.value is None, failed, bool(record.broken), cost, record.id
