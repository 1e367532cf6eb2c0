"""A sweep as pandas tables: for notebooks, other tools, and the report. Reads the folder only."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from results.files import write_atomic
from results.leaderboard import TrialSummary, read_goal, summaries
from results.paths import SweepPaths
from results.records import read_reports, read_trials

if TYPE_CHECKING:
    import pandas as pd

_TRIAL = ["trial", "state", "value", "best_value", "step", "seconds", "attempts", "reason"]
_REPORT = ["trial", "step", "attempt", "time"]
_ATTEMPT = ["trial", "attempt", "started", "ended", "seconds", "error"]


@dataclass(frozen=True)
class Results:
    """A sweep as tables.

    Attributes:
        name: of the sweep.
        metric: that the search optimised.
        mode: `min` or `max`.
        trials: a row per trial, best first; columns as in `to_frame`.
        reports: a row per report; columns as in `reports_frame`.
        attempts: a row per launch of a trial; columns as in `attempts_frame`.
    """

    name: str
    metric: str
    mode: str
    trials: pd.DataFrame
    reports: pd.DataFrame
    attempts: pd.DataFrame


def read_tables(path: Path | str) -> Results:
    """Read a sweep folder, also one of a sweep that runs; see `results.load`.

    Raises:
        UserError: the folder is no sweep.
    """
    paths = SweepPaths(Path(path))
    metric, mode = read_goal(paths)
    lines = summaries(paths, metric, mode)
    return Results(
        paths.name, metric, mode, to_frame(lines), reports_frame(paths), attempts_frame(paths)
    )


def to_frame(lines: Sequence[TrialSummary]) -> pd.DataFrame:
    """A row per trial, in the order given.

    Columns: trial, state, value, best_value, step, seconds, attempts, reason, and one
    `params.<name>` for each parameter that varies.
    """
    import pandas as pd

    names = list(dict.fromkeys(name for line in lines for name in line.record.params))
    rows = [_row(line, names) for line in lines]
    frame = pd.DataFrame(rows, columns=[*_TRIAL, *(f"params.{name}" for name in names)])
    return frame.astype({"value": "float64", "best_value": "float64"})


def reports_frame(paths: SweepPaths) -> pd.DataFrame:
    """A row per report of every trial: trial, step, attempt, time (Unix s), and each metric."""
    import pandas as pd

    rows = [
        {"trial": t.id, "step": r.step, "attempt": r.attempt, "time": r.time, **r.metrics}
        for t in read_trials(paths)
        for r in read_reports(paths.trial(t.id), t.end_step)
    ]
    names = dict.fromkeys([*_REPORT, *(k for row in rows for k in row)])
    return pd.DataFrame(rows, columns=list(names))


def attempts_frame(paths: SweepPaths) -> pd.DataFrame:
    """A row per attempt of every trial: trial, attempt, started and ended (Unix s), seconds, error.

    `ended` and `seconds` are NaN while it runs, or when its driver was killed; `error` is None for
    an attempt that was not a failure.
    """
    import pandas as pd

    rows = [
        [t.id, a.number, a.started, a.ended, a.ended and a.ended - a.started, a.error]
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
        if is_object_dtype(plain[name]):  # text alone has a dtype of its own
            plain[name] = [None if v is None else json.dumps(v) for v in plain[name]]
    buffer = io.BytesIO()
    plain.to_parquet(buffer, index=False)
    write_atomic(paths.leaderboard, buffer.getvalue())


def _row(line: TrialSummary, names: Sequence[str]) -> list[Any]:
    record = line.record
    fixed = [record.id, record.state.value, line.value, line.best_value, line.step]
    spent = [round(record.seconds, 3), len(record.attempts), record.reason]
    return [*fixed, *spent, *(record.params.get(name) for name in names)]
