"""Compare MLflow's database with the sweep folder: every run and value is there exactly once."""

from __future__ import annotations

import math
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from results.paths import SweepPaths
from results.records.trial import TrialRecord, read_reports

_KEY = (
    "select distinct s.value from tags f join tags s on s.run_uuid = f.run_uuid"
    " and s.key = 'tune.sweep' where f.key = 'folder' and f.value = ?"
)
_RUNS = (
    "select t.value, t.run_uuid from tags t join tags s on s.run_uuid = t.run_uuid"
    " and s.key = 'tune.sweep' where t.key = 'tune.trial_id' and s.value = ?"
)
_OPEN = (
    "select count(*) from runs r join tags s on s.run_uuid = r.run_uuid"
    " and s.key = 'tune.sweep' where s.value = ? and r.status = 'RUNNING'"
)


def differences(
    paths: SweepPaths, records: dict[str, TrialRecord], database: Path
) -> Iterator[str]:
    """Yield a line for each duplicate, missing or different run and value."""
    with closing(sqlite3.connect(database)) as db:
        keys = [key for (key,) in db.execute(_KEY, (str(paths.root),))]
        if len(keys) != 1:
            yield f"MLflow has {len(keys)} sweeps of {paths.root}, not 1"
            return
        runs = defaultdict(list)
        for trial, run in db.execute(_RUNS, keys):
            runs[trial].append(run)
        for record in records.values():
            if len(runs[record.id]) != 1:
                yield f"MLflow has {len(runs[record.id])} runs of {record.id}, not 1"
                continue
            yield from _values(db, paths, record, runs[record.id][0])
        if still := db.execute(_OPEN, keys).fetchone()[0]:
            yield f"{still} runs in MLflow are still open"


def _values(
    db: sqlite3.Connection, paths: SweepPaths, record: TrialRecord, run: str
) -> Iterator[str]:
    query = "select key, step, value from metrics where run_uuid = ?"
    rows = [row for row in db.execute(query, (run,)) if not row[0].startswith("system/")]
    times = Counter((key, step) for key, step, _ in rows)
    values = {(key, step): value for key, step, value in rows}
    for report in read_reports(paths.trial(record.id), record.end_step):
        for key, value in report.metrics.items():
            if (n := times.pop((key, report.step), 0)) != 1:
                yield f"MLflow has {key} at step {report.step} of {record.id} {n} times"
            elif math.isfinite(value) and not key.endswith("_per_second"):
                told = values[key, report.step]
                if told != value:
                    yield f"MLflow has {told} of {record.id} at step {report.step}, not {value}"
    for (key, step), n in times.items():
        if n > 1:
            yield f"MLflow has {key} at step {step} of {record.id} {n} times"
