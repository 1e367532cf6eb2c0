"""The trials of a sweep folder, best first.

A trial is ranked by its *last* reported value, not by its best one: the checkpoint that can be
averaged, exported or continued is that of the last step. The weights of the best value may no
longer exist.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter

from results.analysis.confirmation import half_width
from results.analysis.cost import close_silent_attempts
from results.analysis.pareto import cost, mean
from results.analysis.replicates import base_trial_id
from results.paths import SweepPaths
from results.records.trial import Report, TrialRecord, TrialState, read_trials_with_reports


@dataclass(frozen=True)
class TrialSummary:
    """One line of the leaderboard. Reports after the record's `end_step` do not count.

    Attributes:
        value: the metric in the newest report that has it; None if no report has it, or if it is
            not finite (the model diverged).
        best_value: the best finite value by mode, at `best_step`; None if there is none.
        step: of the newest report; 0 without reports.
        without_metric: number of its reports that lack the metric.
        mean: over the values of all seeds, if its configuration has several.
        half_width: half the width of the 95 % t-interval of the mean.
        seed_steps: of these values, ascending: a seed that was stopped has an early one.
        values: the newest value of every reported metric; after a selection, the value that was
            compared.
    """

    record: TrialRecord
    value: float | None
    best_value: float | None
    best_step: int | None
    step: int
    reports: int
    without_metric: int = 0
    mean: float | None = None
    half_width: float | None = None
    values: Mapping[str, float] = field(default_factory=dict)
    seed_steps: tuple[int, ...] = ()

    @property
    def at_steps(self) -> str:
        """The steps of which the mean is, in words, if they differ."""
        ends = {*self.seed_steps[:1], *self.seed_steps[-1:]}
        return f" at steps {min(ends)} to {max(ends)}" if len(ends) > 1 else ""

    @property
    def spread(self) -> str:
        """What follows the mean in a table: its interval, and of how many seeds it is."""
        half = "" if self.half_width is None else f" ± {self.half_width:.2g}"
        return f"{half} of {len(self.seed_steps)}{self.at_steps}"


def summarize(
    record: TrialRecord, reports: Sequence[Report], metric: str, mode: str
) -> TrialSummary:
    """The leaderboard line of a trial, from its reports by ascending step."""
    points = [(r.metrics[metric], r.step) for r in reports if metric in r.metrics]
    finite = [(v, s) for v, s in points if math.isfinite(v)]
    # of several steps with the best value, the first
    best = (min if mode == "min" else max)(finite, key=itemgetter(0), default=(None, None))
    last = points[-1][0] if points and math.isfinite(points[-1][0]) else None
    values: dict[str, float] = {}
    for report in reports:
        values.update(report.metrics)
    return TrialSummary(
        record=record,
        value=last,
        best_value=best[0],
        best_step=best[1],
        step=reports[-1].step if reports else 0,
        reports=len(reports),
        without_metric=len(reports) - len(points),
        values=values,
    )


def read_leaderboard(paths: SweepPaths, metric: str, mode: str) -> list[TrialSummary]:
    """The lines of all trials of a sweep, in the order of `rank_trials`."""
    trials = close_silent_attempts(paths, read_trials_with_reports(paths))
    return rank_trials([summarize(*trial, metric, mode) for trial in trials], mode)


def rank_trials(lines: Sequence[TrialSummary], mode: str) -> list[TrialSummary]:
    """Best first, then trials that violate an outcome constraint, failed ones, and those without a
    value; ties by id.

    Configurations with several seeds are compared by their mean. Their trials stay together, best
    seed first. A configuration counts as failed, or as violating a constraint, if one seed does; a
    seed that ended without a value has failed.
    """

    def seed_rank(line: TrialSummary) -> tuple[bool, bool, float, str]:
        rank = 0.0 if line.value is None else cost(line.value, mode)
        return line.value is None, not line.record.eligible, rank, line.record.id

    ranked = []
    for group in group_by_configuration(lines):
        known = [(line.step, line.value) for line in group if line.value is not None]
        if len(group) > 1 and known:
            steps, values = zip(*sorted(known), strict=True)
            average, half = mean(values), half_width(values)
            group = [replace(e, mean=average, half_width=half, seed_steps=steps) for e in group]
        ranked.append(group)
    ranked.sort(key=lambda group: min(_rank(line, group, mode) for line in group))
    return [line for group in ranked for line in sorted(group, key=seed_rank)]


def group_by_configuration(lines: Iterable[TrialSummary]) -> list[list[TrialSummary]]:
    """The trials of each configuration (several if it has several seeds), in the order given."""
    groups: dict[str, list[TrialSummary]] = {}
    for line in lines:
        groups.setdefault(base_trial_id(line.record.id), []).append(line)
    return list(groups.values())


def one_per_configuration(lines: Iterable[TrialSummary]) -> list[TrialSummary]:
    """The first trial of each configuration, in the order given."""
    return [group[0] for group in group_by_configuration(lines)]


def best_of(lines: Sequence[TrialSummary], metric: str, mode: str) -> float | None:
    """The best of the newest values of a metric, over the eligible trials; None without any."""
    known = [e.values.get(metric, math.nan) for e in lines if e.record.eligible]
    return min((v for v in known if math.isfinite(v)), key=lambda v: cost(v, mode), default=None)


def _rank(
    line: TrialSummary, group: Sequence[TrialSummary], mode: str
) -> tuple[bool, bool, bool, float, str]:
    """Sort key of a configuration, from one of its trials."""
    value = line.value if line.mean is None else line.mean
    rank = 0.0 if value is None else cost(value, mode)
    failed = any(
        e.record.state is TrialState.FAILED or (e.value is None and e.record.state.finished)
        for e in group
    )
    violated_constraints = any(e.record.violated_constraints for e in group)
    return line.value is None, failed, violated_constraints, rank, line.record.id
