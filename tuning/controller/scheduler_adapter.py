"""Connects a sweep to its scheduler: records and reports go in, decisions come out."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import partial

from results.analysis.pareto import comparable
from results.analysis.replicates import ReplicateScores, base_trial_id
from results.records.trial import Report, TrialRecord, TrialState
from search_spaces.spec.sweep import SweepSpec
from tuning.search.evidence import ScoreCurves
from tuning.search.schedulers import Decision, Era, Exploit, History, Scheduler, make_scheduler


class SchedulerAdapter:
    """Translates between records and reports and the scheduler's steps and scores.

    With `scheduler.per`, trials of each combination of values have a scheduler of their own.

    Attributes:
        rungs: steps of the scheduler's clock at which a trial may be paused.
        curves: by number of the configuration, the first objective's score at each step of that
            clock.
    """

    def __init__(self, spec: SweepSpec) -> None:
        self._spec, self._objectives = spec, spec.objectives
        self._groups = defaultdict[object, Scheduler](
            partial(make_scheduler, spec.scheduler, spec.domains(), spec.seed)
        )
        self.rungs = self._groups[()].rungs
        self._by_trial: dict[str, Scheduler] = {}
        self.curves = ScoreCurves()
        self._finals: dict[str, list[float]] = {}
        self._clocks = defaultdict[str, dict[int, int]](dict)  # by step, where it is another
        self._joint = ReplicateScores(spec.replicates)
        self._stopped: set[str] = set()

    def _of(self, trial_id: str) -> Scheduler:
        return self._by_trial.get(base_trial_id(trial_id), self._groups[()])

    def divergence(self, report: Report) -> str | None:
        """A few words if a report shows that the model diverged, or has no clock; else None."""
        limit = self._spec.failure.diverged_above
        for name in (*(o.metric for o in self._objectives), self._spec.scheduler.time_attr):
            value = report.metrics.get(name, 0.0)
            beyond = limit is not None and name == self._objectives[0].metric and value > limit
            if beyond or not math.isfinite(value):
                return f"{name} is {value}"
        return None

    def decide(self, record: TrialRecord, report: Report) -> Decision:
        """The decision about a trial; CONTINUE if a report lacks an objective."""
        values = self._values(report)
        if values is None:
            return Decision.CONTINUE
        self._finals[record.id] = values
        signs = [1.0 if o.mode == "max" else -1.0 for o in self._objectives]
        scores = tuple(sign * v for sign, v in zip(signs, values, strict=True))
        clock = report.clock(self._spec.scheduler.time_attr)
        if clock != report.step:
            self._clocks[record.id][report.step] = clock
        return self._decide_jointly(record, clock, scores, record.seconds_until(report))

    def _decide_jointly(
        self, record: TrialRecord, clock: int, scores: tuple[float, ...], seconds: float
    ) -> Decision:
        """Ask the scheduler about the mean of all replicates, once all reached a step.

        If the mean is stopped, all replicates are.
        """
        first, joint = base_trial_id(record.id), self._joint.add(record.id, clock, scores)
        decision = Decision.CONTINUE
        if joint is not None:
            self.curves.add(record.number, clock, joint[0], seconds)
            group = tuple(repr(record.params.get(name)) for name in self._spec.scheduler.per)
            scheduler = self._by_trial.setdefault(first, self._groups[group])
            decision = scheduler.decide(first, clock, joint)
        if decision is Decision.STOP:
            self._stopped.add(first)
        max_t = self._spec.scheduler.max_t
        if joint is None and max_t is not None and clock >= max_t:
            return Decision.COMPLETE
        return Decision.STOP if first in self._stopped else decision

    def replay(
        self, history: Iterable[tuple[TrialRecord, Report]]
    ) -> dict[str, tuple[Report, Decision]]:
        """Bring the scheduler to the state after the recorded reports.

        Returns:
            The last report of a trial and the decision about it, by id, if a killed driver may not
            have acted on the decision: the trial is unfinished and no later attempt started. Also
            of paused trials that the scheduler, which was changed since, would not pause.
        """
        last: dict[str, tuple[Report, Decision]] = {}
        records: dict[str, TrialRecord] = {}
        for record, report in _in_order(history):
            if self.divergence(report) is None:
                records[record.id] = record
                last[record.id] = report, self.decide(record, report)
        return {i: d for i, d in last.items() if _is_unapplied(records[i], *d)}

    def on_trial_resume(self, trial_id: str) -> None:
        """An attempt of the trial starts."""
        self._of(trial_id).on_trial_resume(trial_id)

    def on_trial_complete(self, trial_id: str) -> None:
        """The trial has ended."""
        self._of(trial_id).on_trial_complete(trial_id)

    def next_to_resume(self, *, more: bool, idle: bool) -> str | None:
        """The paused trial that continues now; see `Scheduler.next_to_resume`."""
        asked = (one.next_to_resume(more=more, idle=idle) for one in self._groups.values())
        return next((trial_id for trial_id in asked if trial_id is not None), None)

    def exploit(self, trial_id: str, records: Mapping[str, TrialRecord]) -> Exploit | None:
        """The trial whose weights the resumed trial continues from; None for its own."""
        return self._of(trial_id).exploit(trial_id, lambda one: self._history(records[one]))

    @property
    def misleading(self) -> bool:
        """Whether the order at the rungs contradicts the final order, at some size."""
        return any(one.misleading for one in self._groups.values())

    def final_values(self, trial_id: str) -> list[float] | None:
        """The objectives' values in the last report that has all of them."""
        return self._finals.get(trial_id)

    def _values(self, report: Report) -> list[float] | None:
        names = [o.metric for o in self._objectives]
        if not all(name in report.metrics for name in names):
            return None
        return [comparable(report.metrics[name]) for name in names]

    def _history(self, record: TrialRecord) -> History:
        first = record.lineage[0].before if record.lineage else record.params
        clocks = self._clocks[record.id]
        later = [Era(clocks.get(i.step, i.step), i.after, i.donor) for i in record.lineage]
        return [Era(0, first, None), *later]


def _is_unapplied(record: TrialRecord, report: Report, decision: Decision) -> bool:
    if record.attempts and record.attempts[-1].number > report.attempt:  # a later attempt started
        return False
    no_longer_paused = record.state is TrialState.PAUSED and decision is not Decision.PAUSE
    return record.state.active or no_longer_paused


def _in_order(
    history: Iterable[tuple[TrialRecord, Report]],
) -> list[tuple[TrialRecord, Report]]:
    """Reports of all trials by time; those of one trial in their order, whatever their times."""
    newest: dict[str, float] = {}
    timed = []
    for record, report in history:
        newest[record.id] = max(newest.get(record.id, 0.0), report.time)
        timed.append((newest[record.id], record.id, record, report))
    return [(record, report) for _, _, record, report in sorted(timed, key=lambda t: t[:2])]
