"""A damaged sweep folder mends itself: each record is made again from the others.

Only a sweep's owner mends, before it goes on. What was damaged is kept beside it as `*.damaged`.
"""

from __future__ import annotations

import json
import os
import re
import time
import uuid
from collections import defaultdict
from pathlib import Path

from results.paths import SweepPaths, TrialPaths
from results.records import environment
from results.records.environment import Environment
from results.records.spec_file import is_damaged
from results.records.trial import (
    Attempt,
    Report,
    TrialRecord,
    read_reports,
    read_trial,
    write_trial,
)
from results.storage.atomic import write_atomic
from search_spaces.checksum import json_matches_checksum
from search_spaces.errors import UserError
from search_spaces.spec.sweep import SweepSpec
from trainables.runtime.provenance import versions
from tuning.controller.sweep_dir.folder import SweepState, read_state, write_state
from tuning.search.study import SweepStudy, derive_seed

_ATTEMPT, _TRIAL = re.compile(r"attempt_(\d+)"), re.compile(r"t(\d{4,})")
REBUILT = "rebuilt from the study and the reports"


def quarantine_file(path: Path) -> Path | None:
    """Rename what is damaged, without replacing what was set aside before; None if it is gone."""
    for number in range(1, 10_000):
        kept = path.with_name(f"{path.name}.damaged" + (f"-{number}" if number > 1 else ""))
        if not kept.exists():
            break
    if not path.exists():
        return None
    os.replace(path, kept)
    return kept


def repair_spec(paths: SweepPaths) -> list[str]:
    """Make `sweep.yaml` again from its copy when it is damaged; else the copy from it."""
    if is_damaged(paths):
        problem = f"{paths.spec}: damaged" if paths.spec.exists() else f"{paths.spec}: gone"
        kept = quarantine_file(paths.spec)
        write_atomic(paths.spec, paths.spec_copy.read_bytes())
        done = f"made again from {paths.spec_copy.relative_to(paths.root)}"
        return [_said(problem, kept, f"{done}; to change a sweep: tune resume --set KEY=VALUE")]
    if not paths.spec_copy.exists() or paths.spec_copy.read_bytes() != paths.spec.read_bytes():
        write_atomic(paths.spec_copy, paths.spec.read_bytes())
    return []


def repair_state(paths: SweepPaths) -> list[str]:
    """Make `state.json` again when it is lost: time spent is what the trials took, from first to
    last sign; the sweep gets a new identity, so its MLflow runs are made anew.
    """
    try:
        read_state(paths)
    except UserError as e:
        kept = quarantine_file(paths.state)
        first, last = _life(paths)
        write_state(paths, SweepState(uuid.uuid4().hex, (first,), (last - first,)))
        return [_said(e, kept, "made again; MLflow gets new runs of the sweep")]
    return []


def open_study(paths: SweepPaths, spec: SweepSpec) -> tuple[SweepStudy, list[str]]:
    """The study; one that is damaged, or contradicts the trials' records, is begun anew.

    Its trials are added from the records by whoever restores the sweep.
    """
    problem: object
    try:
        study = SweepStudy(paths.study, spec.name, spec)
        contrary = [r.id for r in _whole(paths) if not study.agrees(r)]
        if not contrary:
            return study, []
        problem = f"{paths.study}: contradicts the records of {', '.join(contrary)}"
    except Exception as e:  # noqa: BLE001 - Optuna raises whatever a damaged line makes it raise
        problem = f"{paths.study}: not readable ({type(e).__name__})"
    kept = quarantine_file(paths.study)
    fresh = SweepStudy(paths.study, spec.name, spec)
    return fresh, [_said(problem, kept, "made again from the trials' records")]


def repair_trials(paths: SweepPaths, spec: SweepSpec, study: SweepStudy) -> list[str]:
    """Make the records of trials again that are lost; a trial of which nothing is known is set
    aside as a whole.
    """
    said = []
    folders = sorted(p for p in paths.trials.glob("t*") if _TRIAL.fullmatch(p.name) and p.is_dir())
    for trial in map(TrialPaths, folders):
        if not trial.record.exists() and not trial.reports.exists():
            continue  # its driver was killed before it wrote the first record
        try:
            read_trial(trial)
        except UserError as e:
            _refuse_what_is_whole(trial, e)
            said.append(_repair_trial(trial, spec, study, e))
    return said


def _refuse_what_is_whole(trial: TrialPaths, error: UserError) -> None:
    """A record that is as it was written, but not as this version reads it, is no damage."""
    if not trial.record.exists() or not json_matches_checksum(data := trial.record.read_bytes()):
        return
    if json.loads(data).get("id") == trial.root.name:
        raise UserError(
            f"{error.problems[0]}; it is whole, so another version of tune wrote it: "
            "go on with that one"
        ) from error


def _repair_trial(trial: TrialPaths, spec: SweepSpec, study: SweepStudy, error: UserError) -> str:
    number = int(trial.root.name[1:])
    known = study.recall(number)
    if known is None:
        kept = quarantine_file(trial.root)
        return _said(error, kept, "the study does not know the trial either: it is set aside")
    kept = quarantine_file(trial.record)
    params, state, last_step = known
    reports = read_reports(trial)
    attempts = _attempts(trial, reports)
    record = TrialRecord(
        id=trial.root.name,
        number=number,
        params=params,
        config=spec.nest(params),
        seed=derive_seed(spec.seed, number),
        state=state,
        reason=REBUILT if state.finished else "",
        end_step=last_step if last_step is not None or not reports else reports[-1].step,
        created=attempts[0].started if attempts else time.time(),
        attempts=attempts,
    )
    if not state.finished:
        record = record.model_copy(update={"end_step": None})
    write_trial(trial, record)
    return _said(error, kept, REBUILT)


def _attempts(trial: TrialPaths, reports: list[Report]) -> tuple[Attempt, ...]:
    """Every attempt that left a trace, so that the next one's number is new."""
    times = defaultdict(list)
    for report in reports:
        times[report.attempt].append(report.time)
    logs = trial.logs.iterdir() if trial.logs.is_dir() else iter(())
    claimed = [int(m.group(1)) for p in logs if (m := _ATTEMPT.fullmatch(p.name))]
    first = min((r.time for r in reports), default=time.time())
    return tuple(
        Attempt(
            number=n,
            started=min(times[n], default=first),
            ended=max(times[n], default=first),
            workers=_workers(trial, n),
        )
        for n in range(1, max([*times, *claimed], default=0) + 1)
    )


def _workers(trial: TrialPaths, attempt: int) -> int:
    found = environment.read(trial, attempt)
    return int(found.hardware.get("workers", 1)) if found else 1


def _whole(paths: SweepPaths) -> list[TrialRecord]:
    records = []
    for trial_id in paths.trial_ids():
        try:
            records.append(read_trial(paths.trial(trial_id)))
        except UserError:
            continue
    return records


def _life(paths: SweepPaths) -> tuple[float, float]:
    """First and last sign of the sweep's trials, in Unix seconds."""
    attempts = [a for r in _whole(paths) for a in r.attempts]
    now = time.time()
    first = min((a.started for a in attempts), default=now)
    return first, max((a.ended or a.started for a in attempts), default=now)


def _said(problem: object, kept: Path | None, done: str) -> str:
    where = f" (kept as {kept.name})" if kept else ""
    return f"mended: {problem}{where}; {done}"


def version_changes(paths: SweepPaths, records: dict[str, TrialRecord]) -> list[str]:
    """One line when the newest attempt that said so ran with other versions than this process.

    They are no reason to refuse: what goes on is read from files, never from pickles. But a curve
    that goes on under another torch may differ in its last bits.
    """
    ran = _newest_environment(paths, records)
    if ran is None:
        return []
    now = ran.model_copy(update={"versions": dict(versions())})
    return [
        f"other {line}; trials go on, and may differ in the last bits"
        for line in environment.differences(ran, now)
    ]


def _newest_environment(paths: SweepPaths, records: dict[str, TrialRecord]) -> Environment | None:
    attempts = [(a.started, r.id, a.number) for r in records.values() for a in r.attempts]
    for _, trial_id, number in sorted(attempts, reverse=True):
        if (found := environment.read(paths.trial(trial_id), number)) is not None:
            return found
    return None
