"""Whether the order of trials at the rungs agrees with their order at the end."""

from __future__ import annotations

import itertools
import json
import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from results.analysis.confirmation import Confirmation
from results.analysis.pareto import comparable, cost
from results.analysis.selection import Trial
from results.records.integrity import Integrity
from results.records.trial import Report, TrialRecord, TrialState
from search_spaces.spec.sweep import SweepSpec

_LEAST_COMPLETE = 5
"""Complete trials from which on their best one says something: of two it is often chance."""


@dataclass(frozen=True)
class RungPlace:
    """The place of the best complete trial among all trials at a rung.

    Attributes:
        step: of the rung.
        place: from 1, the best.
        count: trials at the rung.
        kept: whether it is among the share that a scheduler continues.
    """

    step: int
    place: int
    count: int
    kept: bool

    def __str__(self) -> str:
        return f"{_ordinal(self.place)} of {self.count} at step {self.step}"


@dataclass(frozen=True)
class RungEvidence:
    """What the complete trials of a sweep say about its rungs.

    Attributes:
        complete: trials that reached `max_t`.
        tested: of these, trials that some rung would have stopped.
        winner: id of the best of them; empty if there is none.
        places: of the winner at each rung, ascending.
        confirmed: whether the winner is that of new measurements.
    """

    complete: int
    tested: int
    winner: str
    places: tuple[RungPlace, ...]
    confirmed: bool = False

    @property
    def misleading(self) -> bool:
        """Whether a rung would have stopped the best of at least five complete trials."""
        enough = self.complete >= _LEAST_COMPLETE
        return enough and any(not place.kept for place in self.places)

    @property
    def safe_grace_period(self) -> int | None:
        """The first step from which on every rung keeps the winner; None if there is none."""
        safe = None
        for place in reversed(self.places):
            if not place.kept:
                break
            safe = place.step
        return safe

    def advice(self, sweep: str) -> str:
        """One sentence for people.

        Args:
            sweep: as the commands take it.
        """
        if self.complete < _LEAST_COMPLETE:
            counts = f"{self.complete} of at least {_LEAST_COMPLETE} trials complete"
            return f"early values: unknown whether they mislead, {counts}"
        at = " and ".join(map(str, self.places))
        name = f"{self.winner}, confirmed" if self.confirmed else self.winner
        winner = f"of {self.complete} complete trials the best ({name}) was {at}"
        if self.misleading:
            return f"early values mislead: {winner}; {self._remedy(sweep)}"
        if self.tested:
            return f"early values: {winner}: the rungs agree"
        return (
            f"early values: {winner}; unknown whether they mislead, no trial that a rung would stop"
            " was trained to the end"
        )

    def _remedy(self, sweep: str) -> str:
        if (grace := self.safe_grace_period) is not None:
            return (
                f"consider grace_period {grace} "
                f"(tune resume {sweep} --set scheduler.grace_period={grace})"
            )
        return "no rung would have kept it: consider scheduler none"


def rung_evidence(
    spec: SweepSpec, trials: Sequence[Trial], confirmation: Confirmation | None = None
) -> RungEvidence | None:
    """Compare the order at the rungs with the final order of complete trials.

    A rung keeps the best `1 / reduction_factor` of the trials that reached it. Every scheduler with
    a `max_t` has such steps, also one that stops nothing there. With `scheduler.per`, only trials
    like the winner count.

    Args:
        spec: of the sweep.
        trials: all of them, with all of their reports, or those of `rung_trials`.
        confirmation: of its best trials. Its winner is the best one, if it is complete: a single
            final value is partly luck.

    Returns:
        None for several objectives, without a rung, and for populations, which exchange weights.
    """
    steps = spec.scheduler.rung_steps
    if len(spec.objectives) > 1 or not steps or spec.scheduler.name in ("pbt", "pb2"):
        return None
    curves = {record.id: _costs(spec, reports) for record, reports in trials}
    groups = {r.id: [r.params.get(name) for name in spec.scheduler.per] for r, _ in trials}
    finals = {
        record.id: curves[record.id][max(curves[record.id])]
        for record, _ in trials
        if _is_complete(record, curves[record.id], spec)
    }
    chosen = confirmation.winner.trial if confirmation else ""
    winner = chosen if chosen in finals else min(finals, key=finals.__getitem__, default="")
    curves = {t: curve for t, curve in curves.items() if groups[t] == groups.get(winner)}
    finals = {t: final for t, final in finals.items() if t in curves}
    factor = spec.scheduler.reduction_factor
    places = [_places(_at_rung(curves, step), math.ceil(step), factor) for step in steps]
    missed = {t for at in places for t, place in at.items() if not place.kept}
    return RungEvidence(
        complete=len(finals),
        tested=len(missed & set(finals)),
        winner=winner,
        places=tuple(at[winner] for at in places if winner in at),
        confirmed=winner == chosen != "",
    )


def rung_trials(spec: SweepSpec, found: Integrity) -> list[Trial]:
    """All trials, each with its reports at the rungs and at the end: the others are not parsed."""
    trials: list[Trial] = []
    for _, (record, chain) in sorted(found.read.items()):
        is_plain = len(record.attempts) == 1 and chain.last_step == record.end_step
        lines = _rung_lines(chain.lines, spec) if is_plain and chain.lines else None
        decisive = replace(chain, lines=lines) if lines else chain
        trials.append((record, decisive.reports(record.end_step)))
    return trials


def _rung_lines(lines: Sequence[bytes], spec: SweepSpec) -> list[bytes] | None:
    """The first line from each rung on, and the last; None unless the clock ascends in all lines,
    and all have the metric."""
    metric, clock = (
        f"{json.dumps(name)}:".encode() for name in (spec.metric, spec.scheduler.time_attr)
    )
    times = []
    for line in lines:
        start = line.rfind(clock, 0, line.rfind(b'"attempt":')) + len(clock)
        value = line[start : line.find(b",", start)].rstrip(b"}")
        if metric not in line or start < len(clock) or not value.isdigit():
            return None
        times.append(int(value))
    if any(a >= b for a, b in itertools.pairwise(times)):
        return None
    wanted = {bisect_left(times, step) for step in spec.scheduler.rung_steps}
    return [lines[i] for i in sorted(wanted | {len(lines) - 1}) if i < len(lines)]


def _costs(spec: SweepSpec, reports: Sequence[Report]) -> dict[int, float]:
    """Step of the scheduler's clock to the metric's cost, ascending; the first of each step."""
    costs: dict[int, float] = {}
    for report in reports:
        if (value := report.metrics.get(spec.metric)) is not None:
            step = report.clock(spec.scheduler.time_attr)
            costs.setdefault(step, -comparable(-cost(value, spec.mode)))
    return costs


def _is_complete(record: TrialRecord, costs: Mapping[int, float], spec: SweepSpec) -> bool:
    max_t = spec.scheduler.max_t
    reached = max_t is None or max(costs, default=0) >= max_t
    return record.state is TrialState.COMPLETED and bool(costs) and reached


def _at_rung(curves: Mapping[str, Mapping[int, float]], rung: float) -> dict[str, float]:
    """The cost of each trial that reached a rung, at its first report from there on."""
    first = {trial: next((s for s in costs if s >= rung), None) for trial, costs in curves.items()}
    return {trial: curves[trial][step] for trial, step in first.items() if step is not None}


def _places(at: Mapping[str, float], step: int, reduction_factor: float) -> dict[str, RungPlace]:
    """The place of each trial at a rung; trials with equal costs share the better place."""
    ordered = sorted(at.values())
    kept = max(1, math.floor(len(ordered) / reduction_factor + 1e-9))
    found = {trial: bisect_left(ordered, value) for trial, value in at.items()}
    return {
        trial: RungPlace(step, place + 1, len(ordered), place < kept)
        for trial, place in found.items()
    }


def _ordinal(number: int) -> str:
    """1st, 2nd, 3rd, 4th, 11th, …"""
    endings = {1: "st", 2: "nd", 3: "rd"} if not 10 <= number % 100 <= 20 else {}
    return f"{number}{endings.get(number % 10, 'th')}"
