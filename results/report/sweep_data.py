"""What the report shows of a sweep, read once from its folder."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

from results.analysis import confirmation
from results.analysis.confirmation import Confirmation
from results.analysis.leaderboard import TrialSummary, summarize
from results.analysis.leaderboard import rank_trials as ordered
from results.analysis.selection import Selection, select_winner, selection_objectives
from results.paths import SweepPaths
from results.records.spec_file import read_spec
from results.records.trial import (
    Attempt,
    Report,
    TrialRecord,
    TrialState,
    read_reports,
    read_trials,
)
from search_spaces.errors import UserError
from search_spaces.spec.sweep import SweepSpec

_Told = list[tuple[TrialRecord, list[Report]]]
_WITH_RUNGS = ("asha", "asha_promote", "hyperband")
Curve = list[tuple[int, float]]
"""(step, value) of the metric, ascending, finite values only."""


@dataclass(frozen=True)
class Importance:
    """How much each parameter matters, by one method.

    Attributes:
        method: its name.
        shares: parameter to its part of 1, the greatest first.
        step: of the values it was computed from; see `common_step`.
        trials: how many of them.
    """

    method: str
    shares: dict[str, float]
    step: int
    trials: int


@dataclass(frozen=True)
class FailureCount:
    """Failed attempts of one class: how many, of which trials, and one of the messages.

    `remedies` is what was done about them; see `results.records.failures`.
    """

    name: str
    remedies: tuple[str, ...]
    attempts: int
    trials: tuple[str, ...]
    example: str


@dataclass(frozen=True)
class SweepData:
    """A sweep as the report needs it.

    Attributes:
        spec: the frozen sweep file.
        lines: the leaderboard.
        curves: trial id to its curve of the sweep's metric.
        points: trial id to its last value of each objective that selection weighs, for trials
            that have them all; empty with a single objective.
        choice: the winner and why; None while there is none.
        confirmation: the best trials measured again, where that was done.
        importances: may be empty; computed by who can.
        others: the sweep as if each further objective were its only one.
        named: whether it is one objective of several.
    """

    spec: SweepSpec
    lines: list[TrialSummary]
    curves: dict[str, Curve]
    points: dict[str, dict[str, float]] = field(default_factory=dict)
    choice: Selection | None = None
    confirmation: Confirmation | None = None
    importances: list[Importance] = field(default_factory=list)
    others: list[SweepData] = field(default_factory=list)
    named: bool = False

    @property
    def objectives(self) -> list[SweepData]:
        """The sweep by each of its objectives, the first one first."""
        return [self, *self.others]

    @property
    def ranked(self) -> list[TrialSummary]:
        """The trials that have a value and may win, best first."""
        return [e for e in self.lines if e.value is not None and e.record.eligible]

    @property
    def rung_steps(self) -> tuple[float, ...]:
        """Steps at which the scheduler compares trials; empty where it has no rungs."""
        scheduler = self.spec.scheduler
        return scheduler.rung_steps if scheduler.name in _WITH_RUNGS else ()

    @property
    def sign(self) -> int:
        """Makes the metric a cost: 1 when less is better, else -1."""
        return 1 if self.spec.mode == "min" else -1


def read(paths: SweepPaths) -> SweepData:
    """Read a sweep folder.

    Raises:
        UserError: it is no sweep, or a record in it is damaged.
    """
    spec = read_spec(paths)
    several = selection_objectives(spec, spec.select)
    told = [(r, read_reports(paths.trial(r.id), r.end_step)) for r in read_trials(paths)]
    try:
        choice = select_winner(paths, spec)
    except UserError:  # no trial has a value yet
        choice = None
    return replace(
        _by(spec, told, spec.metric, spec.mode),
        spec=spec,
        points=_points(told, several) if len(several) > 1 else {},
        choice=choice,
        confirmation=confirmation.read(paths),
        named=len(several) > 1,
        others=[_by(spec, told, n, m) for n, m in several.items() if n != spec.metric],
    )


def _by(spec: SweepSpec, told: _Told, metric: str, mode: str) -> SweepData:
    """A sweep as if one metric were its only objective."""
    lines = [summarize(record, reports, metric, mode) for record, reports in told]
    curves = {}
    for record, reports in told:
        curve = [(r.step, r.metrics[metric]) for r in reports if metric in r.metrics]
        curves[record.id] = [p for p in curve if math.isfinite(p[1])]
    alone = spec.model_copy(update={"metrics": metric, "modes": mode})
    return SweepData(alone, ordered(lines, mode), curves, named=True)


def _points(told: _Told, names: Collection[str]) -> dict[str, dict[str, float]]:
    found = {}
    for record, reports in told:
        if reports and set(names) <= reports[-1].metrics.keys():
            found[record.id] = {name: reports[-1].metrics[name] for name in names}
    return found


def common_step(curves: Sequence[Curve], least: int = 1) -> int:
    """The last step that at least half of the curves reached, and `least` of them; 0 without any.

    Values of trials that were stopped early are not comparable with those of trials that were
    not: where trials are compared with each other, it is at this step.
    """
    ends = sorted((curve[-1][0] for curve in curves if curve), reverse=True)
    return ends[min(len(ends), max((len(ends) + 1) // 2, least)) - 1] if ends else 0


def value_at(curve: Curve, step: int) -> float | None:
    """The newest value at or before a step, of a curve that reached it; else None."""
    if not curve or curve[-1][0] < step:
        return None
    return next((value for at, value in reversed(curve) if at <= step), None)


def failures(records: Sequence[TrialRecord]) -> list[FailureCount]:
    """Failed attempts by the class of their error, the most frequent first."""
    classes: dict[str, list[tuple[str, str, str]]] = {}
    for record in records:
        for attempt in record.attempts:
            if error := _error(record, attempt):
                treated = attempt.remedy.value if attempt.remedy else ""
                classes.setdefault(_class(error), []).append((record.id, error, treated))
    found = [
        FailureCount(
            name,
            tuple(dict.fromkeys(remedy for _, _, remedy in of if remedy)),
            len(of),
            tuple(dict.fromkeys(trial for trial, _, _ in of)),
            of[0][1],
        )
        for name, of in classes.items()
    ]
    return sorted(found, key=lambda f: -f.attempts)


def _error(record: TrialRecord, attempt: Attempt) -> str | None:
    """Why an attempt failed; the last one of a failed trial may only have said so in the record."""
    last = attempt is record.attempts[-1]
    return attempt.error or (record.reason if last and record.state is TrialState.FAILED else None)


def _class(error: str) -> str:
    """`rank 1: ValueError: no` is a `ValueError`; what is no exception is its own class."""
    head = error.removeprefix("rank ").lstrip("0123456789").removeprefix(": ")
    name = head.partition(":")[0].strip()
    return name if name.replace(".", "").replace("_", "").isalnum() else error.partition(" (")[0]
