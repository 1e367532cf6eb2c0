"""Decides about a failed trial: another attempt, or its end."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from results.paths import SweepPaths
from results.records.failures import (
    MORE_MEMORY,
    Cause,
    Failure,
    Remedy,
    classify,
    same_cause,
    signature,
)
from results.records.machines import Machine
from results.records.trial import Attempt, TrialRecord
from search_spaces.errors import suggest
from search_spaces.files import read_regular
from search_spaces.patterns import matches
from search_spaces.spec.sweep import SweepSpec
from trainables.registry import resolve
from tuning.controller.resources.trial_layouts import TrialLayouts

_LOG_TAIL = 20_000
"""Bytes at the end of each log that are searched."""
UNKNOWN_MACHINES: Mapping[int, Machine] = MappingProxyType({})
"""The machine of no rank is known."""


class FailurePolicy:
    """Decides about a failed attempt: another attempt, or the end of the trial.

    Reads the logs of the failed attempt, and writes nothing.
    """

    def __init__(
        self, spec: SweepSpec, paths: SweepPaths, layouts: TrialLayouts | None = None
    ) -> None:
        self._spec, self._paths = spec, paths
        self._layouts = layouts or TrialLayouts(spec)

    def diagnose(
        self,
        record: TrialRecord,
        error: str,
        step: int | None,
        machines: Mapping[int, Machine] = UNKNOWN_MACHINES,
    ) -> Failure:
        """Classify the failure of a trial's newest attempt, with the end of its ranks' logs.

        Args:
            record: of the trial.
            error: one line.
            step: the trial's last one.
            machines: of each rank, as far as that is known.
        """
        logs = _logs(self._paths.trial(record.id).attempt(len(record.attempts)))
        patterns = {p: Remedy(r) for p, r in self._spec.failure.on_log.items()}
        last, oom = record.attempts[-1], Remedy(self._spec.failure.on_oom)
        if self._spec.resources.gpus_per_worker == "auto" and 0 < last.gpus < last.workers:
            oom = Remedy.LARGER_SHARE  # a whole GPU may have the memory that it needs
        log, known = "\n".join(logs.values()), step is not None
        found = classify(error, log, patterns=patterns, on_oom=oom, reported=known)
        if found.remedy is Remedy.RETRY_ELSEWHERE:
            found = replace(found, blamed=_suspect_machines(error, logs, machines, patterns))
        if found.remedy is Remedy.SHRINK and self._halved_batch(record) is None:
            larger = self._layouts.larger(record)
            return replace(
                found, remedy=Remedy.INFEASIBLE if larger is None else Remedy.LARGER_LAYOUT
            )
        return _charge_repeated_loss(found, record.attempts, step)

    def shrunk_record(self, record: TrialRecord) -> TrialRecord:
        """The record of a trial that ran out of memory, for its next attempt.

        With half the micro-batch, where that is possible.
        """
        if record.attempts[-1].remedy is Remedy.LARGER_LAYOUT:
            return record.model_copy(update={"reason": "out of memory; takes a larger layout"})
        adjusted = {**record.adjusted, **(self._halved_batch(record) or {})}
        return record.model_copy(update={"adjusted": adjusted})

    def _halved_batch(self, record: TrialRecord) -> dict[str, Any] | None:
        """Half the micro-batch, as changes of the trial's configuration; None if impossible."""
        config = {**record.config, **record.adjusted}
        checked = resolve(self._spec.trainable).Config.model_validate(config)
        if not self._layouts.may_shrink(record):
            return None
        return checked.halve_micro_batch(self._layouts.data_parallel(record))

    def describe_missing(self, fault: str, reported: Collection[str]) -> str:
        """One line on a trial without a value of the metric.

        Args:
            fault: words before the names of the objectives.
            reported: names of the metrics that the trial has.
        """
        names, trainable = [o.metric for o in self._spec.objectives], resolve(self._spec.trainable)
        what = f"{fault} {' and '.join(names)}"
        if reported:
            missing = next((name for name in names if name not in reported), None)
            hint = suggest(missing, reported) if missing else ""
            return what + (hint or f"; it has {', '.join(sorted(reported))}")
        advice = "; a Ray Train loop calls ray.train.report" if not trainable.is_known else ""
        return f"{what}; it reported nothing{advice}"

    def failed_alike(self, error: str, records: Iterable[TrialRecord]) -> tuple[str, ...]:
        """Ids of the trials whose code failed last in the same way, none of which has a value.

        Args:
            error: of a trial, one line.
            records: of all trials, while none has a value.

        Returns:
            An empty tuple with `failure.stop_after_same: 0`.
        """
        if not self._spec.failure.stop_after_same:
            return ()
        last = {r.id: r.last_failure for r in records}
        return tuple(i for i, a in last.items() if a and _is_of_code(a, error))

    def reason_to_end(self, alike: Sequence[str], error: str) -> str | None:
        """The reason why the session ends, in one line, if that many trials failed alike."""
        limit = self._spec.failure.stop_after_same
        if not limit or len(alike) < limit:
            return None
        names = f"{', '.join(alike[:-1])} and {alike[-1]}" if len(alike) > 1 else alike[0]
        return f"{names} failed in the same way, and no trial has a value: {error}"

    def reason_to_fail(
        self, failure: Failure, attempts: Sequence[Attempt], alike: Sequence[str] = ()
    ) -> str | None:
        """The reason why a trial fails, in one line; None if it gets another attempt.

        Args:
            failure: of the last attempt, whose record has it.
            attempts: of the trial.
            alike: trials that failed in the same way, this one included: with another one it is
                not tried again.
        """
        remedy = failure.remedy
        if remedy in (*MORE_MEMORY, Remedy.STOP_SWEEP):
            # a micro-batch of 1, the number of layouts and a whole GPU bound the first; the last
            # one ends the session, for a resume
            return None
        if remedy is Remedy.FAIL_TRIAL:
            return failure.error
        if not remedy.tries_again:
            return f"{remedy}: {failure.error}"
        if len(alike) > 1:
            return failure.error
        same = [a for a in attempts if a.cause is failure.cause and a.remedy not in MORE_MEMORY]
        spec = self._spec.failure
        limit = {
            Cause.BUG: spec.max_retries,
            Cause.PREEMPTION: spec.max_preemptions,
            Cause.INFRASTRUCTURE: spec.max_infrastructure,
        }[failure.cause]
        return None if limit is None or len(same) <= limit else _too_many(failure, same)


def _is_of_code(attempt: Attempt, error: str) -> bool:
    """Whether the code failed before the first value, with the same error."""
    of_code = attempt.cause is Cause.BUG and attempt.remedy in (Remedy.RETRY, Remedy.FAIL_TRIAL)
    return of_code and attempt.step is None and same_cause(attempt.error or "", error)


def _charge_repeated_loss(
    failure: Failure, attempts: Sequence[Attempt], step: int | None
) -> Failure:
    """Charge the code, not the infrastructure, if a process is lost twice at the same step."""
    before = [a for a in attempts[:-1] if a.error is not None]
    if failure.cause is not Cause.INFRASTRUCTURE or not before:
        return failure
    same = signature(before[-1].error or "") == signature(failure.error)
    return replace(failure, cause=Cause.BUG) if same and before[-1].step == step else failure


def _too_many(failure: Failure, attempts: Sequence[Attempt]) -> str:
    """The error, and how many attempts failed for the same cause."""
    count, kinds = len(attempts), {signature(a.error or "") for a in attempts}
    if count == 1:
        return failure.error
    if len(kinds) == 1:
        return f"{failure.error} (the same error {count} times)"
    return f"{failure.error} ({count} attempts failed, {failure.cause})"


def _suspect_machines(
    error: str,
    logs: Mapping[int, str],
    machines: Mapping[int, Machine],
    patterns: Mapping[str, Remedy],
) -> tuple[Machine, ...]:
    """The machines of the ranks whose logs match a `retry_elsewhere` pattern; else of the rank that
    the error names, which failed first; else of all ranks.
    """
    elsewhere = [p for p, r in patterns.items() if r is Remedy.RETRY_ELSEWHERE]
    ranks = [rank for rank, log in logs.items() if any(matches(p, log) for p in elsewhere)]
    if not ranks and (named := re.match(r"rank (\d+): ", error)):
        ranks = [int(named[1])]
    return tuple(dict.fromkeys(machines[r] for r in ranks or machines if r in machines))


def _logs(folder: Path) -> dict[int, str]:
    """The end of each rank's log."""
    logs = sorted(folder.glob("rank_*.log"))
    return {int(log.stem.removeprefix("rank_")): _tail(log) for log in logs}


def _tail(log: Path) -> str:
    return read_regular(log, max(0, log.stat().st_size - _LOG_TAIL)).decode(errors="replace")
