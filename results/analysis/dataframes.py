"""A sweep folder as pandas tables and as CSV, for notebooks, other tools and the report."""

from __future__ import annotations

import csv
import io
import json
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from results.analysis.leaderboard import TrialSummary, read_leaderboard
from results.paths import SweepPaths
from results.records.integrity import check_records
from results.records.spec_file import read_spec
from results.records.trial import Report, TrialRecord, read_trials, read_trials_with_reports
from results.storage.atomic import write_atomic
from search_spaces.spec.sweep import SweepSpec

if TYPE_CHECKING:
    import pandas as pd


_TRIAL = ["trial", "state", "value", "best_value", "step", "seconds", "attempts", "reason"]
_REPORT = ["trial", "step", "attempt", "time"]
_ATTEMPT = ["trial", "attempt", "started", "ended", "seconds", "error"]
_EXACT = 2**53
"""Floats have all whole numbers up to this one."""


@dataclass(frozen=True)
class Results:
    """The tables of a sweep.

    Attributes:
        mode: `min` or `max`.
        trials: one row per trial, best first; columns as in `trials_frame`.
        reports: one row per report; columns as in `reports_frame`.
        attempts: one row per launch of a trial; columns as in `attempts_frame`.
    """

    name: str
    metric: str
    mode: str
    trials: pd.DataFrame
    reports: pd.DataFrame
    attempts: pd.DataFrame


def load(path: Path | str, *, accept_damage: bool = False) -> Results:
    """Read a sweep folder into pandas tables, for a notebook: `load("sweeps/llm").trials`.

    The sweep may be running.

    Args:
        path: of the folder.
        accept_damage: warn about damaged or incomplete records, and read the others.

    Raises:
        UserError: the folder is not a sweep.
        DamagedRecordsError: records are damaged or incomplete.
    """
    found = check_records(SweepPaths(Path(path)))
    if not accept_damage:
        found.require()
    if found.problems:
        warnings.warn("; ".join(found.problems), stacklevel=2)
    paths = found.readable
    spec = read_spec(paths)
    trials = trials_frame(read_leaderboard(paths, spec.metric, spec.mode), spec)
    reports, attempts = reports_frame(paths), attempts_frame(paths)
    return Results(paths.name, spec.metric, str(spec.mode), trials, reports, attempts)


def trials_frame(lines: Sequence[TrialSummary], spec: SweepSpec) -> pd.DataFrame:
    """One row per trial, in the order given.

    Columns: trial, state, value, best_value, step, seconds, attempts, reason, one `value.<metric>`
    per further objective, and one `params.<name>` per parameter that varies: of Python's objects if
    floats would have to hold whole numbers above 2**53.
    """
    import pandas as pd

    names = list(dict.fromkeys(name for line in lines for name in line.record.params))
    others = [o.metric for o in spec.objectives[1:]]
    rows = []
    for line in lines:
        record = line.record
        state = [record.id, record.state.value, line.value, line.best_value, line.step]
        spent = [round(record.seconds, 3), len(record.attempts), record.reason]
        more = [*(line.values.get(n) for n in others), *(record.params.get(n) for n in names)]
        rows.append([*state, *spent, *more])
    values = [f"value.{name}" for name in others]
    frame = pd.DataFrame(rows, columns=[*_TRIAL, *values, *(f"params.{n}" for n in names)])
    for name in names:
        given = [line.record.params.get(name) for line in lines]
        is_large = any(type(v) is int and abs(v) > _EXACT for v in given)
        if is_large and frame[f"params.{name}"].dtype == "float64":  # beside missing values
            frame[f"params.{name}"] = pd.Series(given, dtype=object)
    return frame.astype(dict.fromkeys(["value", "best_value", *values], "float64"))


def reports_frame(paths: SweepPaths) -> pd.DataFrame:
    """One row per report: trial, step, attempt, time (Unix s), and `metric_columns`."""
    import pandas as pd

    rows = [
        {"trial": t.id, "step": r.step, "attempt": r.attempt, "time": r.time, **metric_columns(r)}
        for t, reports in read_trials_with_reports(paths)
        for r in reports
    ]
    names = dict.fromkeys([*_REPORT, *(k for row in rows for k in row)])
    return pd.DataFrame(rows, columns=list(names))


def metric_columns(report: Report) -> dict[str, float]:
    """The metrics; one with the name of another column has `metric.` before it."""
    return {f"metric.{n}" if n in _REPORT else n: v for n, v in report.metrics.items()}


def attempts_frame(paths: SweepPaths) -> pd.DataFrame:
    """One row per attempt: trial, attempt, started and ended (Unix s), seconds, error.

    `seconds` is without the start of its workers. It and `ended` are NaN while the attempt runs, or
    if its driver was killed. `error` is None for an attempt that did not fail.
    """
    import pandas as pd

    rows = [
        [t.id, a.number, a.started, a.ended, a.ended and a.seconds, a.error]
        for t in read_trials(paths)
        for a in t.attempts
    ]
    frame = pd.DataFrame(rows, columns=_ATTEMPT)
    return frame.astype({"started": "float64", "ended": "float64", "seconds": "float64"})


def write_parquet(paths: SweepPaths, frame: pd.DataFrame) -> None:
    """Write `leaderboard.parquet` atomically. Columns of mixed types are written as JSON text."""
    from pandas.api.types import is_object_dtype

    plain = frame.copy()
    for name in plain.columns:
        if is_object_dtype(plain[name]):  # mixed types; text has its own dtype
            plain[name] = [None if v is None else json.dumps(v) for v in plain[name]]
    buffer = io.BytesIO()
    plain.to_parquet(buffer, index=False)
    write_atomic(paths.leaderboard, buffer.getvalue())


_FIRST = ("step", "time", "attempt")


def metrics_csv(reports: Sequence[Report]) -> str:
    """The reports of one trial; `time` in Unix seconds."""
    return _csv(_FIRST, [_row(report) for report in reports])


def sweep_csv(trials: Sequence[tuple[TrialRecord, Sequence[Report]]]) -> str:
    """The reports of all trials, with the trial's id in the first column."""
    rows = [{"trial": record.id, **_row(r)} for record, reports in trials for r in reports]
    return _csv(("trial", *_FIRST), rows)


def _row(report: Report) -> dict[str, object]:
    first = {"step": report.step, "time": report.time, "attempt": report.attempt}
    return {**metric_columns(report), **first}


def _csv(first: Sequence[str], rows: Sequence[dict[str, object]]) -> str:
    names = dict.fromkeys([*first, *(name for row in rows for name in row)])
    text = io.StringIO()
    writer = csv.DictWriter(text, list(names), restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
