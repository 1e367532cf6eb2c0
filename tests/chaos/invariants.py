"""Invariants that hold after any fault, checked on the sweep folder and MLflow's database alone.

I1 no finished trial runs again. I2 each step of a trial counts once, in the folder and in MLflow.
I3 curves are those of an uninterrupted sweep, bit for bit. I4 so are states, decisions and the
winner. I5 the sweep has no owner, and no process of it runs. I6 at most one checkpoint interval is
done twice. I7 every failure names its cause, and a session that ends early names the next command.
I8 a trial that failed or was resumed reports again within bounded time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from results.analysis.leaderboard import read_leaderboard
from results.paths import SweepPaths
from results.records.spec_file import read_spec
from results.records.trial import Report, TrialRecord, read_reports, read_trials
from results.sweep_folder.lock import current_driver
from tests.chaos import mlflow_state
from tests.chaos.recovery import raw_reports, recoveries

RECOVERY_S = 600.0


@dataclass(frozen=True)
class Case:
    """A sweep into which faults were injected.

    Attributes:
        paths: of the sweep.
        whole: an uninterrupted sweep of the same file and seed; None skips I3 and I4.
        finished: the trials that were finished before the last resume.
        interval: steps between checkpoints.
        database: MLflow's SQLite file; None skips it.
        recovery_s: upper bound for I8 (seconds).
        left: finds processes, actors and placement groups of the sweep that still exist.
        said: output of sessions that ended before the sweep was finished.
    """

    paths: SweepPaths
    whole: SweepPaths | None
    finished: dict[str, TrialRecord] = field(default_factory=dict)
    interval: int = 1
    database: Path | None = None
    recovery_s: float = RECOVERY_S
    left: Callable[[], list[str]] = list
    said: tuple[str, ...] = ()


def finished_trials(paths: SweepPaths) -> dict[str, TrialRecord]:
    """The value of `Case.finished`; called before a resume."""
    return {r.id: r for r in read_trials(paths) if r.state.finished}


def violations(case: Case) -> list[str]:
    """Every broken invariant, one line each; empty when all hold."""
    records = {r.id: r for r in read_trials(case.paths)}
    found = [*_run_again(case, records), *_counted_twice(case, records)]
    if case.whole is not None:
        found += [*_other_curves(case, records), *_other_decisions(case, records)]
    if holder := current_driver(case.paths.lock):
        found.append(f"I5: still driven by {holder}")
    found += [f"I5: {what} is left" for what in case.left()]
    found += [*_done_twice(case, records), *_unexplained(case, records), *_slow(case)]
    return found


def lost_steps(paths: SweepPaths) -> int:
    """Number of steps that were done twice, in all trials."""
    return sum(sum(_repeated(raw_reports(paths, r)).values()) for r in read_trials(paths))


def _run_again(case: Case, records: dict[str, TrialRecord]) -> Iterator[str]:
    for trial_id, before in case.finished.items():
        after = records.get(trial_id)
        if after is None:
            yield f"I1: {trial_id} was finished and is gone"
        elif after != before:
            yield f"I1: {trial_id} was finished and was changed"
        elif any(r.attempt > len(before.attempts) for r in raw_reports(case.paths, before)):
            yield f"I1: {trial_id} was finished and reported again"


def _counted_twice(case: Case, records: dict[str, TrialRecord]) -> Iterator[str]:
    for record in records.values():
        said = Counter((r.step, r.attempt) for r in raw_reports(case.paths, record))
        for (step, attempt), times in said.items():
            if times > 1:
                yield f"I2: {record.id} reported step {step} {times} times in attempt {attempt}"
    if case.database is not None:
        for line in mlflow_state.differences(case.paths, records, case.database):
            yield f"I2: {line}"


def _other_curves(case: Case, records: dict[str, TrialRecord]) -> Iterator[str]:
    assert case.whole is not None
    for expected in read_trials(case.whole):
        record = records.get(expected.id)
        ours = _curve(case.paths, record) if record else {}
        theirs = _curve(case.whole, expected)
        if ours.keys() != theirs.keys():
            yield f"I3: {expected.id} has steps {sorted(ours)}, not {sorted(theirs)}"
        for step in ours.keys() & theirs.keys():
            if ours[step] != theirs[step]:
                yield f"I3: {expected.id} at step {step}: {ours[step]}, not {theirs[step]}"


def _curve(paths: SweepPaths, record: TrialRecord) -> dict[int, dict[str, str]]:
    """Values as text: every bit of a float shows, and NaN equals NaN."""
    return {
        r.step: {k: repr(v) for k, v in r.metrics.items() if not k.endswith("_per_second")}
        for r in read_reports(paths.trial(record.id), record.end_step)
    }


def _other_decisions(case: Case, records: dict[str, TrialRecord]) -> Iterator[str]:
    assert case.whole is not None
    theirs = {r.id: r for r in read_trials(case.whole)}
    for trial_id in sorted(records.keys() | theirs.keys()):
        a, b = (_decided(side.get(trial_id)) for side in (records, theirs))
        if a != b:
            yield f"I4: {trial_id} is {a}, not {b}"
    first, other = _winner(case.paths), _winner(case.whole)
    if first != other:
        yield f"I4: the winner is {first}, not {other}"


def _decided(record: TrialRecord | None) -> tuple[object, ...]:
    if record is None:
        return ("missing",)
    return record.state.value, record.end_step, record.params


def _winner(paths: SweepPaths) -> str | None:
    spec = read_spec(paths)
    lines = read_leaderboard(paths, spec.metric, str(spec.mode))
    return lines[0].record.id if lines else None


def _repeated(reports: list[Report]) -> dict[int, int]:
    """Attempt → number of its steps that an earlier attempt had reported."""
    seen: dict[int, int] = {}
    again: Counter[int] = Counter()
    for report in reports:
        again[report.attempt] += seen.get(report.step, report.attempt) < report.attempt
        seen.setdefault(report.step, report.attempt)
    return again


def _done_twice(case: Case, records: dict[str, TrialRecord]) -> Iterator[str]:
    for record in records.values():
        for attempt, times in _repeated(raw_reports(case.paths, record)).items():
            if times > case.interval:
                yield (
                    f"I6: attempt {attempt} of {record.id} did {times} steps again, "
                    f"more than the interval of {case.interval}"
                )


def _unexplained(case: Case, records: dict[str, TrialRecord]) -> Iterator[str]:
    for record in records.values():
        if record.state.finished and not record.reason:
            yield f"I7: {record.id} is {record.state} without a reason"
        for attempt in record.attempts:
            if attempt.error is not None and not (attempt.error and attempt.remedy):
                yield f"I7: attempt {attempt.number} of {record.id} failed without error or remedy"
    for text in case.said:
        if "tune " not in text:
            yield f"I7: no next command in {text.strip()[-200:]!r}"


def _slow(case: Case) -> Iterator[str]:
    for what, seconds in recoveries(case.paths):
        if seconds > case.recovery_s:
            yield f"I8: {what} reported after {seconds:.0f} s"
