"""What becomes of a trial after a failure: another attempt, or its end. Arithmetic over records."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from results.paths import TrialPaths
from results.records.failures import Cause, Failure, Remedy, classify, signature
from results.records.machines import Machine
from results.records.trial import Attempt, TrialRecord
from search_spaces.spec.sweep import FailureSpec, SweepSpec
from trainables.registry import resolve

_LOG_TAIL = 20_000
NOWHERE: Mapping[int, Machine] = MappingProxyType({})
"""No rank's machine is known."""


def diagnose(
    error: str,
    paths: TrialPaths,
    record: TrialRecord,
    step: int | None,
    spec: SweepSpec,
    machines: Mapping[int, Machine] = NOWHERE,
) -> Failure:
    """Classify the failure of a trial's newest attempt, with the end of what its ranks printed.

    Args:
        error: one line.
        paths: of the trial.
        record: of the trial.
        step: to which it has come.
        spec: of the sweep.
        machines: of each rank, as far as that is known.
    """
    logs = _logs(paths.attempt(len(record.attempts)))
    patterns = {p: Remedy(r) for p, r in spec.failure.on_log.items()}
    oom = Remedy(spec.failure.on_oom)
    found = classify(error, "\n".join(logs.values()), patterns=patterns, on_oom=oom)
    if found.remedy is Remedy.RETRY_ELSEWHERE:
        found = replace(found, blamed=_blamed(error, logs, machines, patterns))
    if found.remedy is Remedy.SHRINK and shrink(record, spec) is None:
        return replace(found, remedy=Remedy.INFEASIBLE)
    return _stuck(found, record.attempts, step)


def shrink(record: TrialRecord, spec: SweepSpec) -> dict[str, Any] | None:
    """What half the micro-batch changes in a trial's configuration; None where nothing can be."""
    config = resolve(spec.trainable).Config.model_validate({**record.config, **record.adjusted})
    return config.halve_micro_batch(record.attempts[-1].workers)


def decide(failure: Failure, attempts: Sequence[Attempt], spec: FailureSpec) -> str | None:
    """Why a trial is over after a failure, in one line; None when it gets another attempt.

    Args:
        failure: of the last attempt, which is closed with it.
        attempts: of the trial.
        spec: the budgets.
    """
    if failure.remedy in (Remedy.SHRINK, Remedy.STOP_SWEEP):  # the one is bounded by 1, the other
        return None  # ends the session, and leaves the trial for a resume
    if failure.remedy is Remedy.FAIL_TRIAL:
        return failure.error
    if not failure.remedy.tries_again:
        return f"{failure.remedy}: {failure.error}"
    charged = [a for a in attempts if a.cause is failure.cause and a.remedy is not Remedy.SHRINK]
    limit = _limit(spec, failure.cause)
    return None if limit is None or len(charged) <= limit else _given_up(failure, charged)


def _stuck(failure: Failure, attempts: Sequence[Attempt], step: int | None) -> Failure:
    """A process that is lost twice at the same step is not bad luck: its code is charged."""
    before = [a for a in attempts[:-1] if a.error is not None]
    if failure.cause is not Cause.INFRASTRUCTURE or not before:
        return failure
    same = signature(before[-1].error or "") == signature(failure.error)
    return replace(failure, cause=Cause.BUG) if same and before[-1].step == step else failure


def count(records: Iterable[TrialRecord]) -> dict[str, int]:
    """How often each remedy was taken in a sweep, the most frequent first."""
    remedies = Counter(str(a.remedy) for r in records for a in r.attempts if a.remedy is not None)
    return dict(remedies.most_common())


def _given_up(failure: Failure, charged: Sequence[Attempt]) -> str:
    kinds = {signature(a.error or "") for a in charged}
    if len(charged) > 1 and len(kinds) == 1:
        return f"{failure.error} (the same error {len(charged)} times)"
    again = f"{len(charged)} attempts failed, {failure.cause}"
    return f"{failure.error} ({again})" if len(charged) > 1 else failure.error


def _limit(spec: FailureSpec, cause: Cause) -> int | None:
    return {
        Cause.BUG: spec.max_retries,
        Cause.PREEMPTION: spec.max_preemptions,
        Cause.INFRASTRUCTURE: spec.max_infrastructure,
    }[cause]


def _blamed(
    error: str,
    logs: Mapping[int, str],
    machines: Mapping[int, Machine],
    patterns: Mapping[str, Remedy],
) -> tuple[Machine, ...]:
    """The machines of the ranks whose logs say what was looked for; else of the rank that failed
    first, which the error names; of all where it names none.
    """
    elsewhere = [p for p, r in patterns.items() if r is Remedy.RETRY_ELSEWHERE]
    ranks = [rank for rank, log in logs.items() if any(re.search(p, log) for p in elsewhere)]
    if not ranks and (named := re.match(r"rank (\d+): ", error)):
        ranks = [int(named[1])]
    return tuple(dict.fromkeys(machines[r] for r in ranks or machines if r in machines))


def _logs(folder: Path) -> dict[int, str]:
    """The end of what each rank printed."""
    logs = sorted(folder.glob("rank_*.log"))
    return {int(log.stem.removeprefix("rank_")): _tail(log) for log in logs}


def _tail(log: Path) -> str:
    with open(log, "rb") as f:
        f.seek(max(0, log.stat().st_size - _LOG_TAIL))
        return f.read().decode(errors="replace")
