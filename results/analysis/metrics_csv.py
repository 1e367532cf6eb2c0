"""The reports of trials as CSV: a row per report, a column per metric."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from results.records.trial import Report, TrialRecord

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
    return {**report.metrics, **first}


def _csv(first: Sequence[str], rows: Sequence[dict[str, object]]) -> str:
    names = dict.fromkeys([*first, *(name for row in rows for name in row)])
    text = io.StringIO()
    writer = csv.DictWriter(text, list(names), restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
