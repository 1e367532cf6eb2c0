"""Trials in order, read from any sweep folder: no Ray, no driver, no pandas until a table is asked.

A trial is ranked by its *last* reported value, not its best one: the checkpoint that can be
averaged, exported or continued is of the last step, so the best value may be of weights that
no longer exist.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from results.files import write_atomic
from results.paths import SweepPaths
from results.records import Report, TrialRecord, TrialState, read_reports, read_trials
from search_spaces.errors import UserError
from search_spaces.load import load_sweep

if TYPE_CHECKING:
    import pandas as pd


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


@dataclass(frozen=True)
class Results:
    """A sweep as tables, for notebooks: see `to_frame` and `reports_frame` for the columns."""

    name: str
    metric: str
    mode: str
    trials: pd.DataFrame
    reports: pd.DataFrame


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
    """Every trial, best first; then failed ones, then those without a value; ties by id."""
    lines = [
        summarize(record, read_reports(paths.trial(record.id), record.end_step), metric, mode)
        for record in read_trials(paths)
    ]
    return sorted(lines, key=lambda line: _rank(line, mode))


def winner(paths: SweepPaths, metric: str, mode: str) -> TrialSummary:
    """The first of the leaderboard.

    Raises:
        UserError: no trial that did not fail has reported a finite value.
    """
    lines = summaries(paths, metric, mode)
    if not lines or lines[0].value is None or lines[0].record.state is TrialState.FAILED:
        raise UserError(
            f"{paths.root}: none of {len(lines)} trials has a finite '{metric}' yet; "
            f"see what happened with: tune show {paths.name}"
        )
    return lines[0]


def to_frame(lines: Sequence[TrialSummary]) -> pd.DataFrame:
    """A row per trial, in the order given.

    Columns: trial, state, value, best_value, step, seconds, attempts, reason, and one
    `params.<name>` for each parameter that varies.
    """
    import pandas as pd

    names = list(dict.fromkeys(name for line in lines for name in line.record.params))
    fixed = ["trial", "state", "value", "best_value", "step", "seconds", "attempts", "reason"]
    rows = [_row(line, names) for line in lines]
    frame = pd.DataFrame(rows, columns=[*fixed, *(f"params.{name}" for name in names)])
    return frame.astype({"value": "float64", "best_value": "float64"})


def reports_frame(paths: SweepPaths) -> pd.DataFrame:
    """A row per report of every trial: trial, step, attempt, time (Unix s), and each metric."""
    import pandas as pd

    rows = [
        {"trial": t.id, "step": r.step, "attempt": r.attempt, "time": r.time, **r.metrics}
        for t in read_trials(paths)
        for r in read_reports(paths.trial(t.id), t.end_step)
    ]
    names = dict.fromkeys(["trial", "step", "attempt", "time", *(k for row in rows for k in row)])
    return pd.DataFrame(rows, columns=list(names))


def write_parquet(paths: SweepPaths, frame: pd.DataFrame) -> None:
    """Write `leaderboard.parquet` atomically. Columns of mixed types are written as JSON text."""
    from pandas.api.types import is_object_dtype

    plain = frame.copy()
    for name in plain.columns:
        if is_object_dtype(plain[name]):  # text alone has a dtype of its own
            plain[name] = [None if v is None else json.dumps(v) for v in plain[name]]
    buffer = io.BytesIO()
    plain.to_parquet(buffer, index=False)
    write_atomic(paths.leaderboard, buffer.getvalue())


def load(path: Path | str) -> Results:
    """A sweep folder as tables: `load("sweeps/llm").trials`.

    Raises:
        UserError: the folder is no sweep.
    """
    paths = SweepPaths(Path(path))
    metric, mode = read_goal(paths)
    trials = to_frame(summaries(paths, metric, mode))
    return Results(paths.name, metric, mode, trials, reports_frame(paths))


def _cost(value: float, mode: str) -> float:
    return -value if mode == "max" else value


def _rank(line: TrialSummary, mode: str) -> tuple[bool, bool, float, str]:
    cost = 0.0 if line.value is None else _cost(line.value, mode)
    return line.value is None, line.record.state is TrialState.FAILED, cost, line.record.id


def _row(line: TrialSummary, names: Sequence[str]) -> list[Any]:
    record = line.record
    fixed = [record.id, record.state.value, line.value, line.best_value, line.step]
    spent = [round(record.seconds, 3), len(record.attempts), record.reason]
    return [*fixed, *spent, *(record.params.get(name) for name in names)]
