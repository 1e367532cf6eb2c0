"""Which trial is the winner, and why: by the value that counts, of one objective or several.

A confirmation (`results.confirmation`) outweighs both: it was measured for this purpose.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from results import confirmation
from results.leaderboard import TrialSummary, order, summarize
from results.paths import SweepPaths
from results.records import Report, read_reports, read_trial, read_trials
from search_spaces.errors import UserError
from search_spaces.schema import SelectSpec, SweepSpec

Point = Mapping[str, float]
"""A trial's value of each objective."""


@dataclass(frozen=True)
class Choice:
    """The trial that was picked.

    Attributes:
        line: of the leaderboard; its `value` is the one that counted.
        why: a few words.
        confirmed: whether it is a confirmation's winner.
        clear: whether that confirmation told it apart from every other trial in it.
    """

    line: TrialSummary
    why: str
    confirmed: bool = False
    clear: bool = False


def decide(paths: SweepPaths, spec: SweepSpec) -> Choice:
    """The winner of a sweep: of its confirmation where there is one, else by its rule.

    Raises:
        UserError: there is none; see `ranked`.
    """
    made = confirmation.read(paths)
    if made is None or made.winner.trial not in paths.trial_ids():
        return choose(paths, spec, spec.select)
    best = made.winner
    files = paths.trial(best.trial)
    record = read_trial(files)
    reports = read_reports(files, record.end_step)
    line = summarize(record, reports, spec.metric, spec.mode)
    how = f"{len(made.seeds)} fresh seeds" if made.seeds else "the weights of the search"
    interval = f" ± {best.half_width:.3g}" if best.half_width is not None else ""
    word = "lowest" if spec.mode == "min" else "highest"
    why = (
        f"confirmed on the test split with {how}: {best.mean:.5g}{interval}, "
        f"the {word} of {len(made.trials)} trials"
    )
    return Choice(line, why, confirmed=True, clear=made.clear and len(made.trials) > 1)


def ranked(paths: SweepPaths, spec: SweepSpec, select: SelectSpec) -> list[TrialSummary]:
    """The trials that may win, best first; each one's `value` is the one that counts.

    With several objectives only those on the Pareto front may, in the order of the rule.

    Raises:
        UserError: no trial that did not fail, and keeps the outcome constraints, has a finite value
            of each objective.
    """
    objectives = goals(spec, select)
    if len(objectives) > 1 and select.at == "best":
        raise UserError(
            "select.at: several objectives are not compared at their best, which is at different "
            "steps for each; last or smoothed"
        )
    found: list[tuple[TrialSummary, Point]] = []
    for record in read_trials(paths):
        reports = read_reports(paths.trial(record.id), record.end_step)
        values = {name: _value(reports, name, objectives[name], select) for name in objectives}
        point = {name: v for name, v in values.items() if v is not None}
        if record.eligible and len(point) == len(objectives):
            line = summarize(record, reports, spec.metric, spec.mode)
            found.append((replace(line, value=point.get(spec.metric, line.value)), point))
    if not found:
        names = " and ".join(f"'{name}'" for name in objectives)
        if any(record.broken for record in read_trials(paths)):
            names += " and keeps the outcome constraints"
        raise UserError(
            f"{paths.root}: none of {len(paths.trial_ids())} trials has a finite {names} yet; "
            f"see what happened with: tune show {paths.name}"
        )
    if len(objectives) == 1:
        return order([line for line, _ in found], spec.mode)
    return _by_rule(found, objectives, select)


def choose(paths: SweepPaths, spec: SweepSpec, select: SelectSpec) -> Choice:
    """The winner by the rule of the sweep.

    Raises:
        UserError: there is none; see `ranked`.
    """
    first, *rest = ranked(paths, spec, select)
    among, objectives = f"{len(rest) + 1} trials", goals(spec, select)
    if len(objectives) > 1:
        names = ", ".join(f"{mode} {name}" for name, mode in objectives.items())
        return Choice(first, f"the {select.rule} of a Pareto front of {among} ({names})")
    word = "lowest" if spec.mode == "min" else "highest"
    if first.mean is not None:
        spread = "" if first.half_width is None else f" ± {first.half_width:.3g}"
        mean = f"mean over {first.seeds} seeds, {first.mean:.5g}{spread},"
        return Choice(first, f"its {select.at} {spec.metric}'s {mean} is the {word} of {among}")
    return Choice(first, f"its {select.at} {spec.metric} is the {word} of {among}")


def goals(spec: SweepSpec, select: SelectSpec) -> dict[str, str]:
    """The metrics that selection weighs, with their modes: its own, or those of the search."""
    return dict(select.objectives) or {o.metric: o.mode for o in spec.objectives}


def pareto(points: Sequence[Point], modes: Mapping[str, str]) -> list[int]:
    """Indices of the points that no other is better than in one objective and as good in all."""
    costs = [[_cost(p[name], mode) for name, mode in modes.items()] for p in points]
    return [
        i for i, mine in enumerate(costs) if not any(_dominates(other, mine) for other in costs)
    ]


def smoothed(values: Sequence[float], weight: float) -> float:
    """The last of the exponential moving average, without the bias of its start.

    Args:
        values: by ascending step, at least one.
        weight: of the past; 0 is the last value itself. The correction is that of Adam (Kingma and
            Ba 2015), so that a constant stays what it is.
    """
    mean = 0.0
    for value in values:
        mean = weight * mean + (1 - weight) * value
    return mean / (1 - weight ** len(values))


def _value(reports: Sequence[Report], name: str, mode: str, select: SelectSpec) -> float | None:
    """The value that counts; None without a finite one. A trial that diverged at last has none."""
    values = [r.metrics[name] for r in reports if name in r.metrics]
    finite = [v for v in values if math.isfinite(v)]
    if not finite:
        return None
    if select.at == "best":
        return min(finite) if mode == "min" else max(finite)
    if not math.isfinite(values[-1]):
        return None
    return values[-1] if select.at == "last" else smoothed(finite, select.smoothing)


def _by_rule(
    found: Sequence[tuple[TrialSummary, Point]], modes: Mapping[str, str], select: SelectSpec
) -> list[TrialSummary]:
    front = [found[i] for i in pareto([point for _, point in found], modes)]
    scaled = [_scaled(point, [p for _, p in front], modes) for _, point in front]
    weights = {name: select.weights.get(name, 1.0) for name in modes}

    def badness(i: int) -> tuple[float, str]:
        costs = [weights[name] * scaled[i][name] for name in modes]
        total = math.hypot(*scaled[i].values()) if select.rule == "knee" else sum(costs)
        return total, front[i][0].record.id

    return [front[i][0] for i in sorted(range(len(front)), key=badness)]


def _scaled(point: Point, front: Sequence[Point], modes: Mapping[str, str]) -> dict[str, float]:
    """Costs from 0, the best of the front, to 1, the worst of it."""
    scaled = {}
    for name, mode in modes.items():
        costs = [_cost(p[name], mode) for p in front]
        spread = (max(costs) - min(costs)) or 1.0
        scaled[name] = (_cost(point[name], mode) - min(costs)) / spread
    return scaled


def _dominates(one: Sequence[float], other: Sequence[float]) -> bool:
    pairs = list(zip(one, other, strict=True))
    return all(a <= b for a, b in pairs) and any(a < b for a, b in pairs)


def _cost(value: float, mode: str) -> float:
    return -value if mode == "max" else value
