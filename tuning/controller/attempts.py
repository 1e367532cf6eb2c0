"""What becomes of a trial's record when an attempt begins or ends."""

from __future__ import annotations

import time
from collections.abc import Iterable

from results.paths import SweepPaths
from results.records.failures import Failure
from results.records.trial import Attempt, Report, TrialRecord, TrialState
from tuning.controller.resources.placement import Allocation


def begun(record: TrialRecord, allocation: Allocation) -> TrialRecord:
    """The record with another attempt, running since now, that holds so much of the cluster."""
    number = len(record.attempts) + 1
    attempt = Attempt(number=number, started=time.time(), **vars(allocation))
    update = {"state": TrialState.RUNNING, "attempts": (*record.attempts, attempt), "reason": ""}
    return record.model_copy(update={**update, "violations": {}})


def closed(
    record: TrialRecord,
    failure: Failure | None = None,
    *,
    ended: float | None = None,
    step: int | None = None,
) -> TrialRecord:
    """The record waiting, its newest attempt ended if it was open.

    Args:
        record: of the trial.
        failure: what ended it, if it failed.
        ended: Unix seconds; default: now.
        step: the trial's last one, noted of a failure.
    """
    update: dict[str, object] = {"state": TrialState.PENDING}
    if record.attempts and record.attempts[-1].ended is None:
        end: dict[str, object] = {"ended": ended or time.time()}
        if failure is not None:
            end |= {"error": failure.error, "remedy": failure.remedy, "cause": failure.cause}
            end |= {"step": step, "blamed": failure.blamed}
        last = record.attempts[-1].model_copy(update=end)
        update["attempts"] = (*record.attempts[:-1], last)
    return record.model_copy(update=update)


def last_sign(record: TrialRecord, reports: Iterable[Report]) -> float:
    """When an attempt whose driver was killed was last heard of, in Unix seconds."""
    return max([a.started for a in record.attempts] + [r.time for r in reports], default=0.0)


def claim_next(paths: SweepPaths, records: Iterable[TrialRecord]) -> None:
    """Claim the next attempts: what a dead driver's workers report now is not heard of."""
    for record in records:
        if record.attempts and record.state.active:
            folder = paths.trial(record.id).attempt(len(record.attempts) + 1)
            folder.mkdir(parents=True, exist_ok=True)
