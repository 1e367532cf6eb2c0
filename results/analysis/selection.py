"""Which trial is the winner, and why: by the value that counts, of one objective or several.

A confirmation (`results.analysis.confirmation`) outweighs both: it was measured for this purpose.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from results.analysis import confirmation
from results.analysis.confirmation import Confirmation
from results.analysis.leaderboard import TrialSummary, order, summarize
from results.analysis.pareto import rank_front
from results.analysis.replicates import base_trial_id
from results.paths import SweepPaths
from results.records.trial import Report, read_reports, read_trial, read_trials
from search_spaces.errors import UserError
from search_spaces.spec.sweep import SelectSpec, SweepSpec


@dataclass(frozen=True)
class Selection:
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


def select_winner(paths: SweepPaths, spec: SweepSpec) -> Selection:
    """The winner of a sweep: of its confirmation where there is one, else by its rule.

    Raises:
        UserError: there is none; see `rank_candidates`.
    """
    made = confirmation.read(paths)
    if made is None or made.winner.trial not in paths.trial_ids():
        return winner_by_rule(paths, spec, spec.select)
    best = made.winner
    files = paths.trial(best.trial)
    record = read_trial(files)
    reports = read_reports(files, record.end_step)
    line = summarize(record, reports, spec.metric, spec.mode)
    return Selection(line, _confirmed(made), True, made.clear and len(made.trials) > 1)


def _confirmed(made: Confirmation) -> str:
    """Why a confirmation's winner won."""
    how = f"{len(made.seeds)} fresh seeds" if made.seeds else "the weights of the search"
    values = []
    for name, one in made.winner.series.items():
        interval = f" ± {one.half_width:.3g}" if one.half_width is not None else ""
        values.append(f"{f'{name} ' * (len(made.modes) > 1)}{one.mean:.5g}{interval}")
    first = next(iter(made.modes.values()))
    place = f"the {'lowest' if first == 'min' else 'highest'}"
    if len(made.modes) > 1:
        place = f"the {made.rule} of a Pareto front of {len(made.front)}"
    said = ", ".join([*values, f"{place} of {len(made.trials)} trials"])
    return f"confirmed {made.where} with {how}: {said}"


def rank_candidates(paths: SweepPaths, spec: SweepSpec, select: SelectSpec) -> list[TrialSummary]:
    """The trials that may win, best first; each one's `value` is the one that counts.

    With several objectives only those on the Pareto front may, in the order of the rule.

    Raises:
        UserError: no trial that did not fail, and keeps the outcome constraints, has a finite value
            of each objective.
    """
    objectives = selection_objectives(spec, select)
    if len(objectives) > 1 and select.at == "best":
        raise UserError(
            "select.at: several objectives are not compared at their best, which is at different "
            "steps for each; last or smoothed"
        )
    found: list[TrialSummary] = []
    for record in read_trials(paths):
        reports = read_reports(paths.trial(record.id), record.end_step)
        values = {name: _value(reports, name, objectives[name], select) for name in objectives}
        point = {name: v for name, v in values.items() if v is not None}
        if record.eligible and len(point) == len(objectives):
            line = summarize(record, reports, spec.metric, spec.mode)
            value = point.get(spec.metric, line.value)
            found.append(replace(line, value=value, values={**line.values, **point}))
    if not found:
        names = " and ".join(f"'{name}'" for name in objectives)
        if any(record.broken_constraints for record in read_trials(paths)):
            names += " and keeps the outcome constraints"
        raise UserError(
            f"{paths.root}: none of {len(paths.trial_ids())} trials has a finite {names} yet; "
            f"see what happened with: tune show {paths.name}"
        )
    if len(objectives) == 1:
        return order(found, spec.mode)
    return _by_rule(found, objectives, select)


def winner_by_rule(paths: SweepPaths, spec: SweepSpec, select: SelectSpec) -> Selection:
    """The winner by the rule of the sweep.

    Raises:
        UserError: there is none; see `rank_candidates`.
    """
    first, *rest = rank_candidates(paths, spec, select)
    among, objectives = f"{len(rest) + 1} trials", selection_objectives(spec, select)
    if len(objectives) > 1:
        names = ", ".join(f"{mode} {name}" for name, mode in objectives.items())
        return Selection(first, f"the {select.rule} of a Pareto front of {among} ({names})")
    word = "lowest" if spec.mode == "min" else "highest"
    if first.mean is not None:
        spread = "" if first.half_width is None else f" ± {first.half_width:.3g}"
        mean = f"mean over {first.seeds} seeds, {first.mean:.5g}{spread},"
        return Selection(first, f"its {select.at} {spec.metric}'s {mean} is the {word} of {among}")
    return Selection(first, f"its {select.at} {spec.metric} is the {word} of {among}")


def selection_objectives(spec: SweepSpec, select: SelectSpec) -> dict[str, str]:
    """The metrics that selection weighs, with their modes: its own, or those of the search."""
    return dict(select.objectives) or {o.metric: o.mode for o in spec.objectives}


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
    found: Sequence[TrialSummary], modes: Mapping[str, str], select: SelectSpec
) -> list[TrialSummary]:
    """The trials of the configurations on the front, best first; of several seeds by their mean."""
    groups: dict[str, list[TrialSummary]] = {}
    for line in found:
        groups.setdefault(base_trial_id(line.record.id), []).append(line)
    of = [{name: fmean(e.values[name] for e in g) for name in modes} for g in groups.values()]
    members = list(groups.values())
    ordered = rank_front(of, modes, select.rule, select.weights)
    return [line for i in ordered for line in members[i]]
