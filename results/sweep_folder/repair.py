"""Checks a sweep folder before a session, and repairs damaged files from the intact ones.

Only the sweep's owner does this. A damaged file is kept beside the new one as `*.damaged`.
"""

from __future__ import annotations

import json
import os
import re
import time
import uuid
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from results.paths import SweepPaths
from results.records import environment
from results.records.integrity import check_records
from results.records.record_log import RecordLog, log_current, logged_name, read_record_log
from results.records.reports import read_chain
from results.records.spec_file import is_damaged
from results.records.trial import (
    Attempt,
    Report,
    TrialRecord,
    read_reports,
    read_trial,
    write_trial,
)
from results.storage.atomic import quarantine_file, write_atomic
from results.sweep_folder.folder import SweepState, read_state, write_state
from results.trial_paths import TrialPaths
from search_spaces.checksum import json_matches_checksum
from search_spaces.errors import UserError
from search_spaces.files import read_regular

_TRIAL = re.compile(r"t\d{4,}(-\d+)?")
Recover = Callable[[str], TrialRecord | None]
"""Makes the record of a trial from the study, by its id; None if the study lacks it too."""
REBUILT = "rebuilt from the study and the reports"


def repair_spec(paths: SweepPaths) -> list[str]:
    """Restore a damaged `sweep.yaml` from its copy; update the copy of an intact one.

    Returns:
        One line per repair, as of the other functions here.
    """
    if is_damaged(paths):
        problem = f"{paths.spec}: {'damaged' if os.path.lexists(paths.spec) else 'missing'}"
        kept = quarantine_file(paths.spec)
        write_atomic(paths.spec, paths.spec_copy.read_bytes())
        done = f"restored from {paths.spec_copy.relative_to(paths.root)}"
        return [
            repair_line(problem, kept, f"{done}; to change a sweep: tune resume --set KEY=VALUE")
        ]
    data, copy = read_regular(paths.spec), None
    with suppress(OSError):
        copy = read_regular(paths.spec_copy)
    if copy != data and not _is_older(paths, data):
        write_atomic(paths.spec_copy, data)
    return []


def _is_older(paths: SweepPaths, spec: bytes) -> bool:
    """Whether an earlier `sweep.yaml` was put back, which `verify_records` names."""
    with suppress(OSError):
        log = read_record_log(paths)
        return log is not None and log.is_older(logged_name(paths, paths.spec), spec)
    return False


def repair_state(paths: SweepPaths) -> list[str]:
    """Write a new `state.json` if it is lost.

    The time spent is that from the first attempt to the end of the last one. The sweep gets a new
    key, and therefore new MLflow runs.
    """
    try:
        read_state(paths)
    except UserError as e:
        kept = quarantine_file(paths.state)
        attempts, now = [a for r in intact_records(paths) for a in r.attempts], time.time()
        first = min((a.started for a in attempts), default=now)
        last = max((a.ended or a.started for a in attempts), default=now)
        write_state(paths, SweepState(uuid.uuid4().hex, (first,), (max(0.0, last - first),)))
        return [repair_line(e, kept, "rebuilt from the trials; MLflow gets new runs of the sweep")]
    return []


def _repair_record_log(paths: SweepPaths) -> list[str]:
    """Write a new `records.jsonl` if it is lost."""
    problem = "missing"
    try:
        if read_record_log(paths) is not None:
            return []
    except OSError as e:
        problem = f"not readable ({e.strerror})"
    attempts = (a for r in intact_records(paths) for a in r.attempts)
    kept = quarantine_file(paths.record_log)
    if kept is None and all(a.reports is None for a in attempts):
        return []  # a new sweep, or one of an older version
    log_current(paths, [paths.trial(trial_id).record for trial_id in paths.trial_ids()])
    return [repair_line(f"{paths.record_log}: {problem}", kept, "rebuilt from the trials' records")]


def repair_trials(paths: SweepPaths, recover: Recover) -> list[str]:
    """Rebuild lost records of trials; quarantine the folder of a trial that the study lacks too."""
    done = _repair_record_log(paths)
    log = read_record_log(paths) or RecordLog()
    names = {Path(name).parent.name for name in log.writes}
    names |= {p.name for p in paths.trials.glob("t*") if p.is_dir()}
    for trial in map(paths.trial, sorted(filter(_TRIAL.fullmatch, names))):
        try:
            _check_record(trial, log, recover)
        except UserError as e:
            if not isinstance(e, _OlderRecordError):
                _refuse_other_version(trial, e)
            done.append(_repair_trial(trial, recover, e))
    return done


def verify_records(paths: SweepPaths, accept_damage: bool = False) -> list[str]:
    """Check the records after their repair. Their present content counts from then on.

    Returns:
        What is wrong and accepted, a line each.

    Raises:
        DamagedRecordsError: something is wrong, and that is not accepted.
    """
    found = check_records(paths)
    if not accept_damage:
        found.require()
    log = read_record_log(paths) or RecordLog()
    files = [paths.spec, *(paths.trial(trial_id).record for trial_id in paths.trial_ids())]
    log_current(
        paths, [f for f in files if not log.is_last(logged_name(paths, f), read_regular(f))]
    )
    return found.words


class _OlderRecordError(UserError):
    """A record that was put back; this version wrote it."""


def _check_record(trial: TrialPaths, log: RecordLog, recover: Recover) -> None:
    """Raise `UserError` if a trial's record is lost, damaged, or older than the last one."""
    name = logged_name(SweepPaths.of_trial(trial), trial.record)
    if not trial.record.exists():
        known = None if trial.root.exists() else recover(trial.root.name)
        if known and known.state.finished:
            return  # its reports are lost
        if not trial.reports.exists() and log.is_current(name, None):
            return  # the driver was killed before it wrote the first record
    read_trial(trial)
    if log.is_older(name, read_regular(trial.record)):
        raise _OlderRecordError(f"{trial.record}: older than the one that records.jsonl lists last")


def _refuse_other_version(trial: TrialPaths, error: UserError) -> None:
    """Raise for a record that is intact but not readable: another version wrote it."""
    try:
        data = read_regular(trial.record)
    except OSError:
        return
    if json_matches_checksum(data) and json.loads(data).get("id") == trial.root.name:
        raise UserError(
            f"{error.problems[0]}; it is intact, so another version of tune wrote it: "
            "resume with that version"
        ) from error


def _repair_trial(trial: TrialPaths, recover: Recover, error: UserError) -> str:
    record = recover(trial.root.name)
    if record is None:
        kept = quarantine_file(trial.root)
        return repair_line(error, kept, "the study lacks the trial too, so it is left out")
    kept = quarantine_file(trial.record)
    reports = read_reports(trial)
    attempts = _attempts(trial, reports)
    update: dict[str, object] = {"attempts": attempts}
    if attempts:
        update["created"] = attempts[0].started
    if record.state.finished:
        last = reports[-1].step if record.end_step is None and reports else record.end_step
        update |= {"reason": REBUILT, "end_step": last}
    write_trial(trial, record.model_copy(update=update))
    return repair_line(error, kept, REBUILT)


def _attempts(trial: TrialPaths, reports: list[Report]) -> tuple[Attempt, ...]:
    """Every attempt with reports or logs, so that the next one gets a new number."""
    times, links = defaultdict(list), read_chain(trial).links
    for report in reports:
        times[report.attempt].append(report.time)
    first = min((r.time for r in reports), default=time.time())
    return tuple(
        Attempt(
            number=n,
            started=min(times[n], default=first),
            ended=max(times[n], default=first),
            workers=_workers(trial, n),
            reports=len(links[n]) if n in links else None,
            last_report="".join(links.get(n, [])[-1:]),
        )
        for n in range(1, max([*times, *trial.attempts()], default=0) + 1)
    )


def _workers(trial: TrialPaths, attempt: int) -> int:
    found = environment.read(trial, attempt)
    return int(found.hardware.get("workers", 1)) if found else 1


def intact_records(paths: SweepPaths) -> list[TrialRecord]:
    """The records that can be read, in the order of proposal."""
    records = []
    for trial_id in paths.trial_ids():
        try:
            records.append(read_trial(paths.trial(trial_id)))
        except UserError:
            continue
    return records


def repair_line(problem: object, kept: Path | None, done: str) -> str:
    """What was wrong, where the damaged file is kept, and what was done."""
    where = f" (kept as {kept.name})" if kept else ""
    return f"repaired: {problem}{where}; {done}"
