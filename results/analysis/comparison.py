"""Compare sweeps: winner and cost of each, and the best value of each at equal cost."""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from results.analysis.cost import close_silent_attempts, closed
from results.analysis.leaderboard import TrialSummary
from results.analysis.pareto import cost
from results.analysis.selection import rank_candidates, select_winner
from results.paths import SweepPaths
from results.records.spec_file import read_spec
from results.records.trial import Report, TrialRecord, read_trials_with_reports
from search_spaces.errors import UserError
from search_spaces.nested import flattened
from search_spaces.spec.sweep import SweepSpec

Progress = list[tuple[float, float]]
"""(worker-seconds spent, best value of the first objective so far), ascending, one point per
improvement.
"""

_NOT_COMPARED = {"name", "description", "storage", "tracking", "seed"}
"""Keys of a sweep file that do not affect how the search works."""


@dataclass(frozen=True)
class SweepSummary:
    """One sweep in a comparison.

    Attributes:
        name: of the sweep; its path if several sweeps have this name.
        trials: number of finished or paused trials.
        winner: see `select_winner`; None if no trial has a value.
        front: number of trials on the Pareto front, with several objectives.
        cost: worker-seconds of all attempts; one that has not ended counts to the newest report.
        records: of its trials, whose attempts have ended at the newest report.
    """

    name: str
    spec: SweepSpec
    trials: int
    winner: TrialSummary | None
    cost: float
    progress: Progress
    front: int = 1
    records: Sequence[TrialRecord] = ()

    def best_at(self, cost: float) -> float | None:
        """The best value reported up to this cost; None if there was none yet."""
        place = bisect.bisect_right(self.progress, cost, key=lambda point: point[0])
        return self.progress[place - 1][1] if place else None


def compare(sweeps: Sequence[SweepPaths]) -> list[SweepSummary]:
    """Read sweeps with the same metrics and modes, in the order given.

    Raises:
        UserError: metrics or modes differ, or a folder is not a sweep.
    """
    names = [paths.name for paths in sweeps]
    duplicates = {name for name in names if names.count(name) > 1}
    summaries = [
        summarize_sweep(p, str(p.root) if p.name in duplicates else p.name) for p in sweeps
    ]
    first = summaries[0].spec
    for other in (s.spec for s in summaries[1:]):
        if other.objectives != first.objectives:
            raise UserError(
                f"{first.name} has {goal(first)}, {other.name} has {goal(other)}: only sweeps of "
                "the same metrics and modes can be compared"
            )
    return summaries


def goal(spec: SweepSpec) -> str:
    """The objectives of a sweep, in words."""
    return ", ".join(f"{o.mode} {o.metric}" for o in spec.objectives)


def equal_costs(summaries: Sequence[SweepSummary], parts: int = 4) -> list[float]:
    """Costs (worker-seconds) at which to compare all sweeps, up to the cheapest one's total."""
    least = min(s.cost for s in summaries)
    return [least * (i + 1) / parts for i in range(parts)]


def differences(summaries: Sequence[SweepSummary]) -> dict[str, list[Any]]:
    """Keys of the sweep files that differ, with each sweep's value; None if a sweep lacks it."""
    flat = [flattened(s.spec.model_dump(mode="json", exclude=_NOT_COMPARED)) for s in summaries]
    keys = dict.fromkeys(key for one in flat for key in one)
    values = {key: [one.get(key) for one in flat] for key in keys}
    return {key: given for key, given in values.items() if any(v != given[0] for v in given)}


def summarize_sweep(paths: SweepPaths, name: str) -> SweepSummary:
    """Read one sweep.

    Raises:
        UserError: the folder is not a sweep, or a record in it is damaged.
    """
    spec = read_spec(paths)
    trials = close_silent_attempts(paths, read_trials_with_reports(paths))
    reports = [report for _, of_trial in trials for report in of_trial]
    newest = max((r.time for r in reports), default=0.0)
    records = [closed(record, newest) for record, _ in trials]
    best, front = None, 1
    with suppress(UserError):  # no trial has a value
        best = select_winner(paths, spec, trials).line
        if len(spec.objectives) > 1:
            front = len(rank_candidates(paths, spec, spec.select, trials))
    return SweepSummary(
        name,
        spec,
        sum(not r.state.active for r in records),
        best,
        sum(r.worker_seconds for r in records),
        progress(records, [p for r, of in trials if r.eligible for p in of], spec),
        front,
        records,
    )


def progress(
    records: Sequence[TrialRecord], reports: Sequence[Report], spec: SweepSpec
) -> Progress:
    """The best reported value over the worker-seconds spent, for all trials together."""
    import numpy as np

    times, spent = _spending(records)
    least, points = math.inf, []
    for report in sorted(reports, key=lambda r: r.time):
        value = report.metrics.get(spec.metric, math.nan)
        if math.isfinite(value) and cost(value, spec.mode) < least:
            least = cost(value, spec.mode)
            points.append((float(np.interp(report.time, times, spent)), value))
    return points


def _spending(records: Sequence[TrialRecord]) -> tuple[list[float], list[float]]:
    """Times at which workers took an attempt or it ended, and the worker-seconds until then."""
    changes = [(a.started + a.waited, a.workers) for r in records for a in r.attempts]
    changes += [(a.ended, -a.workers) for r in records for a in r.attempts if a.ended]
    times, spent, running = [0.0], [0.0], 0
    for time, change in sorted(changes):
        spent.append(spent[-1] + running * (time - times[-1]))
        times.append(time)
        running += change
    return times, spent
