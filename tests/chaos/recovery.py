"""Time until the next report, after a resume and after a failed attempt."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from results.paths import SweepPaths
from results.records.trial import Report, TrialRecord, read_trials
from results.storage.atomic import read_lines
from results.sweep_folder.folder import read_state
from search_spaces.errors import UserError


def raw_reports(paths: SweepPaths, record: TrialRecord) -> list[Report]:
    """All reports of a trial's attempts, repeated steps included."""
    lines = read_lines(paths.trial(record.id).reports)
    return [Report.model_validate(line) for line in lines]


def recoveries(paths: SweepPaths) -> Iterator[tuple[str, float]]:
    """Yield each interruption and the seconds until the next report."""
    said = {r.id: raw_reports(paths, r) for r in read_trials(paths)}
    sessions = _sessions(paths)
    times = sorted(r.time for reports in said.values() for r in reports)
    for number, began in enumerate(sessions[1:], start=2):
        at = bisect_right(times, began)
        over = sessions[number] if number < len(sessions) else float("inf")
        if at < len(times) and times[at] < over:
            yield f"session {number}", times[at] - began
    for record in read_trials(paths):
        yield from _of_trial(record, said[record.id], sessions)


def recovery_s(paths: SweepPaths) -> float:
    """The longest recovery in seconds; 0 without an interruption."""
    return max((seconds for _, seconds in recoveries(paths)), default=0.0)


def _of_trial(
    record: TrialRecord, reports: list[Report], sessions: tuple[float, ...]
) -> Iterator[tuple[str, float]]:
    for before, attempt in zip(record.attempts, record.attempts[1:], strict=False):
        first = min((r.time for r in reports if r.attempt == attempt.number), default=None)
        if first is None:
            continue
        resumed = bisect_right(sessions, before.started) != bisect_right(sessions, attempt.started)
        fault = attempt.started if resumed or before.ended is None else before.ended
        yield f"attempt {attempt.number} of {record.id}", first - fault


def _sessions(paths: SweepPaths) -> tuple[float, ...]:
    """Start of each session (Unix seconds); empty for a sweep without a session."""
    try:
        return read_state(paths).started
    except UserError:
        return ()
