"""Changes of a trial's record: when the trial is created, and when an attempt begins or ends."""

from __future__ import annotations

import time

from results.analysis.replicates import replicate_id
from results.records import environment
from results.records.failures import Failure
from results.records.integrity import report_problems
from results.records.reports import read_chain
from results.records.trial import Attempt, TrialRecord, TrialState
from results.trial_paths import TrialPaths
from search_spaces.spec.sweep import SweepSpec
from tuning.controller.resources.placement import Allocation

_WHEN_ENDED = ("reports", "last_report", "all_reports", "accelerator", "spot")
"""What an attempt's record says since it has ended."""


def new_record(
    spec: SweepSpec, number: int, params: dict[str, object], replicate: int = 0
) -> TrialRecord:
    """The record of a trial that has no attempt yet.

    Args:
        spec: of the sweep.
        number: of its configuration in the study.
        params: of the configuration, by dotted name.
        replicate: which of the configuration's seeds it has, from 0.
    """
    from tuning.controller.trial_jobs import trial_identity  # `tune ls` imports no trainable,
    from tuning.search.evidence import derive_seed  # and `tune show` no numpy

    config, seed = spec.nest(params), derive_seed(spec.seed, number)
    seed = derive_seed(seed, replicate) if replicate else seed
    return TrialRecord(
        id=replicate_id(number, replicate),
        number=number,
        replicate=replicate,
        params=params,
        config=config,
        seed=seed,
        created=time.time(),
        identity=trial_identity(spec, config, seed),
    )


def begin_attempt(record: TrialRecord, allocation: Allocation) -> TrialRecord:
    """The record with one more attempt, which runs from now on."""
    number = len(record.attempts) + 1
    attempt = Attempt(number=number, started=time.time(), reports=0, **vars(allocation))
    update = {"state": TrialState.RUNNING, "attempts": (*record.attempts, attempt), "reason": ""}
    return record.model_copy(update={**update, "violations": {}})


def end_attempt(
    record: TrialRecord,
    failure: Failure | None = None,
    *,
    ended: float | None = None,
    step: int | None = None,
) -> TrialRecord:
    """The record as PENDING, with its newest attempt ended if it was open.

    Args:
        record: of the trial.
        failure: of the attempt, if it failed.
        ended: Unix seconds; default: now.
        step: the trial's last one, recorded with a failure.
    """
    if record.attempts and record.attempts[-1].ended is None:
        end: dict[str, object] = {"ended": ended or time.time()}
        if failure is not None:
            end |= {"error": failure.error, "remedy": failure.remedy, "cause": failure.cause}
            end |= {"step": step, "blamed": failure.blamed}
        record = _change_newest(record, **end)
    return record.model_copy(update={"state": TrialState.PENDING})


def count_reports(
    record: TrialRecord,
    before: TrialRecord | None,
    paths: TrialPaths,
    unwritten: str = "",
    *,
    new: bool = False,
) -> TrialRecord:
    """The record with the number of reports of its newest attempt, if that has just ended.

    Args:
        record: of the trial, to be written.
        before: the trial's record on disk.
        paths: of the trial.
        unwritten: lines that are to be appended to `reports.jsonl`.
        new: whether there is no such file yet.
    """
    if before is None or not record.attempts or record.attempts[-1].ended is None:
        return record
    last, known = record.attempts[-1], before.attempts[-1]
    if last.number != known.number or known.reports is None:
        return record
    if known.ended is not None:
        kept = {n: getattr(known, n) for n in _WHEN_ENDED}
        return _change_newest(record, **kept)
    record = _change_newest(record, **environment.priced(paths, last.number))
    chain = read_chain(paths, unwritten, new=new)
    links = chain.links.get(last.number, [])
    counted = _change_newest(record, reports=len(links), last_report="".join(links[-1:]))
    if any(report_problems(paths, counted, chain)):
        return counted
    return _change_newest(counted, all_reports=chain.checksum)


def _change_newest(record: TrialRecord, **update: object) -> TrialRecord:
    """The record with another newest attempt."""
    last = record.attempts[-1].model_copy(update=update)
    return record.model_copy(update={"attempts": (*record.attempts[:-1], last)})
