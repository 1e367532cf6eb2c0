"""Trials of one configuration with several seeds: grouping, and the mean of their results.

They share the number of the configuration in the study: `t0003`, `t0003-2`, `t0003-3`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from results.analysis.pareto import mean
from results.records.trial import TrialRecord, TrialState

Curve = list[tuple[int, float]]
"""(step, value) of a metric, by ascending step."""


def replicate_id(number: int, replicate: int) -> str:
    """Trial id of a replicate (counted from 0) of a configuration."""
    return f"t{number:04d}" + (f"-{replicate + 1}" if replicate else "")


def base_trial_id(trial: str) -> str:
    """Id of the first trial with the same configuration."""
    return trial.partition("-")[0]


def is_complete(group: Sequence[TrialRecord], count: int) -> bool:
    """Whether no more replicates start: all exist, or one was stopped or failed."""
    bad = (TrialState.STOPPED, TrialState.FAILED)
    return len(group) >= count or any(r.state in bad for r in group)


def combined_record(group: Sequence[TrialRecord], count: int) -> TrialRecord:
    """One record for a configuration, to report to the searcher.

    It is finished when all replicates are: failed if one failed, otherwise stopped if one was
    stopped. Of each outcome constraint it has the largest violation.
    """
    order = (TrialState.FAILED, TrialState.STOPPED, TrialState.COMPLETED)
    open_ = [r for r in group if not r.state.finished]
    if open_:
        return open_[0]
    if not is_complete(group, count):
        return group[0].model_copy(update={"state": TrialState.PENDING})
    decisive = next(r for state in order for r in group if r.state is state)
    worst = {
        text: max(r.violations[text] for r in group if text in r.violations)
        for text in {text: None for r in group for text in r.violations}
    }
    return decisive.model_copy(update={"violations": worst})


def mean_curve(curves: Sequence[Curve]) -> Curve:
    """The mean at each step that all curves have."""
    if len(curves) == 1:
        return list(curves[0])
    steps = [dict(curve) for curve in curves]
    common = set(steps[0]).intersection(*steps[1:]) if steps else set()
    return [(step, mean([known[step] for known in steps])) for step in sorted(common)]


def mean_values(values: Iterable[Sequence[float] | None]) -> list[float] | None:
    """The mean value of each objective; None if a replicate has no values."""
    rows = list(values)
    known = [row for row in rows if row is not None]
    if not known or len(known) < len(rows):
        return None
    return [mean(column) for column in zip(*known, strict=True)]


class ReplicateGroups:
    """The replicates of each configuration, updated record by record.

    The cost of each call does not grow with the number of trials. `count` is the number of
    replicates per configuration.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._groups: dict[int, dict[int, TrialRecord]] = {}
        self._open: set[int] = set()

    def add(self, record: TrialRecord) -> None:
        """Add or replace the record of a trial."""
        self._groups.setdefault(record.number, {})[record.replicate] = record
        complete = is_complete(self.of(record.number), self._count)
        (self._open.discard if complete else self._open.add)(record.number)

    def of(self, number: int) -> list[TrialRecord]:
        """The replicates of a configuration, ascending."""
        return [record for _, record in sorted(self._groups[number].items())]

    def next_replicate(self) -> tuple[TrialRecord, int] | None:
        """Last trial of a configuration that lacks replicates, and the next replicate number."""
        if not self._open:
            return None
        *_, last = self.of(min(self._open))
        return last, last.replicate + 1


class ReplicateScores:
    """Collects the scores of `count` replicates at each step; a scheduler gets their mean."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._known: dict[tuple[str, int], dict[str, tuple[float, ...]]] = {}

    def add(self, trial: str, step: int, scores: tuple[float, ...]) -> tuple[float, ...] | None:
        """Add a trial's scores; returns the mean once all replicates have scores at this step."""
        if self._count == 1:
            return scores
        of = self._known.setdefault((base_trial_id(trial), step), {})
        of[trial] = scores
        if len(of) < self._count:
            return None
        return tuple(mean(column) for column in zip(*of.values(), strict=True))
