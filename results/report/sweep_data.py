"""The data of a sweep's report, read once from its folder, and its failures by class."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from results.analysis import confirmation
from results.analysis.confirmation import Confirmation
from results.analysis.cost import close_silent_attempts
from results.analysis.leaderboard import TrialSummary, rank_trials, summarize
from results.analysis.pareto import MAX_COMPARED
from results.analysis.phases import phase_means
from results.analysis.replicates import Curve
from results.analysis.selection import (
    Selection,
    Trial,
    rank_candidates,
    select_winner,
    selection_objectives,
)
from results.paths import SweepPaths
from results.records import environment
from results.records.environment import Environment
from results.records.notes import Note, read_notes
from results.records.spec_file import read_spec
from results.records.trial import Report, TrialRecord, TrialState, read_trials_with_reports
from results.records.worker_samples import phase_seconds
from results.sweep_folder.folder import sweep_argument
from search_spaces.errors import UserError
from search_spaces.spec.sweep import SweepSpec

_MAX_PHASES = 30
"""Trials whose time is split by phase."""
_WITHOUT_RUNGS = ("none", "median", "pbt", "pb2")


@dataclass(frozen=True)
class Importance:
    """How important each parameter is, by one method.

    Attributes:
        shares: parameter → its part of 1, largest first.
        step: at which the trials were compared; see `common_step`.
        trials: number of trials that were compared.
    """

    method: str
    shares: dict[str, float]
    step: int
    trials: int


@dataclass(frozen=True)
class SweepData:
    """A sweep as the report needs it.

    Attributes:
        spec: the resolved sweep file.
        summaries: the leaderboard.
        curves: trial id → its finite values of the sweep's metric.
        front: ids of the trials on the Pareto front; empty with a single objective.
        selection: the winner and the reason; None while no trial has a value.
        confirmation: the best trials measured again, if that was done.
        importances: computed by the caller; may be empty.
        phases: trial id → seconds by phase, for the best trials that measured them.
        trials: each with its reports, in the order of proposal.
        environments: of some of the trials.
        searcher: name of the one that `auto` chose, from the caller; else that of the sweep file.
        commit: of the code at the newest session, from the caller; empty if it is not known.
        sessions: when each began, in Unix seconds, from the caller.
        ended: why the sweep ended, from the caller; empty if it has not, or it is not known.
        notes: what people wrote, by trial; see `read_notes`.
        others: for each further objective, the sweep as if that were the only one.
        is_one_of_several: whether this is the view of one objective of several.
        argument: the sweep as commands take it.
    """

    spec: SweepSpec
    summaries: list[TrialSummary]
    curves: dict[str, Curve]
    front: frozenset[str] = frozenset()
    selection: Selection | None = None
    confirmation: Confirmation | None = None
    importances: list[Importance] = field(default_factory=list)
    phases: dict[str, dict[str, float]] = field(default_factory=dict)
    trials: Sequence[Trial] = ()
    environments: list[Environment] = field(default_factory=list)
    searcher: str = ""
    commit: str = ""
    sessions: tuple[float, ...] = ()
    ended: str = ""
    notes: dict[str, Note] = field(default_factory=dict)
    others: list[SweepData] = field(default_factory=list)
    is_one_of_several: bool = False
    argument: str = ""

    @property
    def objectives(self) -> list[SweepData]:
        """The view of each objective, in the order of the sweep file."""
        return [self, *self.others]

    @property
    def finished(self) -> bool:
        """Whether the sweep has ended, or has as many finished trials as its budget."""
        done, most = sum(e.record.state.finished for e in self.summaries), self.spec.budget.trials
        return bool(self.ended) or (most is not None and done >= max(most, len(self.summaries)))

    @property
    def ranked(self) -> list[TrialSummary]:
        """The eligible trials that have a value, best first."""
        return [e for e in self.summaries if e.value is not None and e.record.eligible]

    @property
    def rung_steps(self) -> tuple[float, ...]:
        """Steps at which the scheduler compares trials; empty where it has no rungs."""
        scheduler = self.spec.scheduler
        return () if scheduler.name in _WITHOUT_RUNGS else scheduler.rung_steps

    def clock(self, report: Report) -> int:
        """Time of a report as the scheduler and its rungs count it."""
        return report.clock(self.spec.scheduler.time_attr)

    @property
    def has_variance(self) -> bool:
        """Whether the variance of the values is within the range of floats."""
        values = (value for e in self.ranked for _, value in self.curves[e.record.id])
        return all(abs(value) <= MAX_COMPARED for value in values)

    @property
    def sign(self) -> int:
        """Factor that turns the metric into a cost: 1 when less is better, else -1."""
        return 1 if self.spec.mode == "min" else -1


def read_sweep_data(paths: SweepPaths) -> SweepData:
    """Read a sweep folder.

    Raises:
        UserError: the folder is not a sweep, or a record in it is damaged.
    """
    data = assemble(paths, read_spec(paths), list(read_trials_with_reports(paths)))
    return replace(data, phases=read_phases(paths, data))


def assemble(paths: SweepPaths, spec: SweepSpec, trials: Sequence[Trial]) -> SweepData:
    """The sweep from trials that have been read, without `phases`."""
    objectives = selection_objectives(spec, spec.select)
    trials = close_silent_attempts(paths, trials)
    several = len(objectives) > 1
    front, selection = list[TrialSummary](), None
    with suppress(UserError):  # no trial has a value yet
        selection = select_winner(paths, spec, trials)
        front = rank_candidates(paths, spec, spec.select, trials) if several else []
    return replace(
        _for_objective(spec, trials, spec.metric, spec.mode),
        spec=spec,
        front=frozenset(line.record.id for line in front),
        selection=selection,
        confirmation=confirmation.read(paths),
        trials=trials,
        environments=environment.read_some(paths, [record for record, _ in trials]),
        is_one_of_several=several,
        argument=sweep_argument(paths),
        notes=read_notes(paths),
        others=[
            replace(_for_objective(spec, trials, name, mode), selection=selection)
            for name, mode in objectives.items()
            if name != spec.metric
        ],
    )


def read_phases(paths: SweepPaths, data: SweepData) -> dict[str, dict[str, float]]:
    """Seconds by phase of the best trials, see `SweepData.phases`."""
    best = data.summaries[:_MAX_PHASES]
    found = {
        e.record.id: phase_means(phase_seconds(paths.trial(e.record.id), e.record)) for e in best
    }
    return {trial: seconds for trial, seconds in found.items() if seconds}


def _for_objective(spec: SweepSpec, trials: Sequence[Trial], metric: str, mode: str) -> SweepData:
    """The sweep as if one metric were its only objective."""
    summaries = [summarize(*trial, metric, mode) for trial in trials]
    curves = {}
    for record, reports in trials:
        curve = [(r.step, r.metrics[metric]) for r in reports if metric in r.metrics]
        curves[record.id] = [p for p in curve if math.isfinite(p[1])]
    single = spec.model_copy(update={"metrics": metric, "modes": mode})
    return SweepData(single, rank_trials(summaries, mode), curves, is_one_of_several=True)


def common_step(curves: Sequence[Curve], least: int = 1) -> int:
    """The last step reached by at least half of the curves and at least `least` of them, or 0.

    Trials are compared at this step, because the last values of trials that were stopped early are
    not comparable with those of the others.
    """
    ends = sorted((curve[-1][0] for curve in curves if curve), reverse=True)
    return ends[min(len(ends), max((len(ends) + 1) // 2, least)) - 1] if ends else 0


def value_at(curve: Curve, step: int) -> float | None:
    """The newest value at or before a step; None if the curve does not reach the step."""
    if not curve or curve[-1][0] < step:
        return None
    return next((value for at, value in reversed(curve) if at <= step), None)


@dataclass(frozen=True)
class FailureClass:
    """The failed attempts with one class of error.

    Attributes:
        name: of the error class.
        remedies: what was done after these failures; see `results.records.failures`.
        example: one of the messages.
    """

    name: str
    remedies: tuple[str, ...]
    attempts: int
    trials: tuple[str, ...]
    example: str


def failure_classes(records: Sequence[TrialRecord]) -> list[FailureClass]:
    """Failed attempts by the class of their error, the most frequent first."""
    classes: dict[str, list[tuple[str, str, str]]] = {}
    for record in records:
        for attempt in record.attempts:
            error = attempt.error
            if attempt is record.attempts[-1] and record.state is TrialState.FAILED:
                error = error or record.reason  # the record may say it
            if error:
                remedy = attempt.remedy.value if attempt.remedy else ""
                classes.setdefault(_class_name(error), []).append((record.id, error, remedy))
    found = [
        FailureClass(
            name,
            tuple(dict.fromkeys(remedy for _, _, remedy in attempts if remedy)),
            len(attempts),
            tuple(dict.fromkeys(trial for trial, _, _ in attempts)),
            attempts[0][1],
        )
        for name, attempts in classes.items()
    ]
    return sorted(found, key=lambda one: -one.attempts)


def _class_name(error: str) -> str:
    """`ValueError` for `rank 1: ValueError: no`; the message if it names no exception."""
    head = error.removeprefix("rank ").lstrip("0123456789").removeprefix(": ")
    name = head.partition(":")[0].strip()
    return name if name.replace(".", "").replace("_", "").isalnum() else error.partition(" (")[0]
