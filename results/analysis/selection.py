"""Select the winner of a sweep, by one or several objectives.

A confirmation (`results.analysis.confirmation`) takes precedence: it measured the best trials again
for this purpose.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from results.analysis import confirmation
from results.analysis.confirmation import Confirmation
from results.analysis.leaderboard import (
    TrialSummary,
    group_by_configuration,
    rank_trials,
    summarize,
)
from results.analysis.pareto import cost, mean, rank_front
from results.analysis.replicates import base_trial_id
from results.paths import SweepPaths
from results.records.trial import (
    Report,
    TrialRecord,
    read_reports,
    read_trial,
    read_trials_with_reports,
)
from results.sweep_folder.folder import sweep_argument
from search_spaces.errors import UserError, first_few, quantity
from search_spaces.spec.select import SelectSpec
from search_spaces.spec.sweep import SweepSpec

Trial = tuple[TrialRecord, Sequence[Report]]
"""A trial and its reports by ascending step."""


@dataclass(frozen=True)
class Selection:
    """The winner.

    Attributes:
        line: its leaderboard line; `value` is the value that was compared.
        why: the reason in a few words.
        confirmed: whether it is the winner of a confirmation.
        clear: whether its interval in that confirmation overlaps with no other trial's.
    """

    line: TrialSummary
    why: str
    confirmed: bool = False
    clear: bool = False


def select_winner(
    paths: SweepPaths, spec: SweepSpec, trials: Sequence[Trial] | None = None
) -> Selection:
    """The winner of a sweep: that of its confirmation if there is one, otherwise by its rule.

    Args:
        paths, spec: of the sweep.
        trials: all of them, if they have been read.

    Raises:
        UserError: there is no winner; see `rank_candidates`.
    """
    confirmed = confirmation.read(paths)
    if confirmed is None or confirmed.winner.trial not in paths.trial_ids():
        return winner_by_rule(paths, spec, spec.select, trials)
    files = paths.trial(confirmed.winner.trial)
    record = read_trial(files)
    reports = read_reports(files, record.end_step)
    line = summarize(record, reports, spec.metric, spec.mode)
    clear = confirmed.clear and len(confirmed.trials) > 1
    return Selection(line, _explain_confirmed(confirmed), True, clear)


def _explain_confirmed(confirmed: Confirmation) -> str:
    how = f"{len(confirmed.seeds)} fresh seeds" if confirmed.seeds else "the weights of the search"
    values = []
    for name, one in confirmed.winner.series.items():
        interval = f" ± {one.half_width:.3g}" if one.half_width is not None else ""
        of = f"{name} " if len(confirmed.modes) > 1 else ""
        values.append(f"{of}{one.mean:.5g}{interval}")
    first = next(iter(confirmed.modes.values()))
    place = f"the {'lowest' if first == 'min' else 'highest'}"
    if len(confirmed.modes) > 1:
        place = f"the {confirmed.rule} of a Pareto front of {len(confirmed.front)}"
    reasons = ", ".join([*values, f"{place} of {quantity(len(confirmed.trials), 'trial')}"])
    return f"confirmed {confirmed.where} with {how}: {reasons}"


def rank_candidates(
    paths: SweepPaths, spec: SweepSpec, select: SelectSpec, trials: Sequence[Trial] | None = None
) -> list[TrialSummary]:
    """The trials that can win, best first; the `value` of each is the value that was compared.

    With several objectives, only the trials on the Pareto front, in the order of the rule. A
    configuration of which a seed failed or has no value is compared only if there is no other.

    Raises:
        UserError: no eligible trial has a finite value of each objective.
    """
    objectives = selection_objectives(spec, select)
    if len(objectives) > 1 and select.at == "best":
        raise UserError(
            "select.at: several objectives cannot be compared at their best values, which are at "
            "different steps; use last or smoothed"
        )
    found: list[TrialSummary] = []
    trials = list(read_trials_with_reports(paths)) if trials is None else trials
    metric, mode = spec.metric, spec.mode  # each computed at every use
    for record, reports in trials:
        values = {name: value_of(reports, name, objectives[name], select) for name in objectives}
        point = {name: v for name, v in values.items() if v is not None}
        if record.eligible and len(point) == len(objectives):
            line = summarize(record, reports, metric, mode)
            if not point.items() <= {metric: line.value, **line.values}.items():
                value = point.get(metric, line.value)
                line = replace(line, value=value, values={**line.values, **point})
            found.append(line)
    found = _of_whole_configurations(found, [record for record, _ in trials])
    if not found:
        names = " and ".join(f"'{name}'" for name in objectives)
        if any(record.violated_constraints for record, _ in trials):
            names += " and satisfies the outcome constraints"
        raise UserError(
            f"{paths.root}: none of {len(trials)} trials has a finite {names} yet; "
            f"see: tune show {sweep_argument(paths)}"
        )
    if len(objectives) == 1:
        return rank_trials(found, spec.mode)
    groups = group_by_configuration(found)  # several seeds by their mean
    points = [{n: mean([e.values[n] for e in group]) for n in objectives} for group in groups]
    ordered = rank_front(points, objectives, select.rule, select.weights)
    return [line for i in ordered for line in groups[i]]


def _of_whole_configurations(
    found: list[TrialSummary], records: Sequence[TrialRecord]
) -> list[TrialSummary]:
    """Those of which every seed that has ended can win; all if there are none."""
    able = {line.record.id for line in found}
    ended = (record for record in records if record.state.finished)
    broken = {base_trial_id(record.id) for record in ended if record.id not in able}
    return [line for line in found if base_trial_id(line.record.id) not in broken] or found


def winner_by_rule(
    paths: SweepPaths, spec: SweepSpec, select: SelectSpec, trials: Sequence[Trial] | None = None
) -> Selection:
    """The winner by a rule of selection.

    Raises:
        UserError: there is no winner; see `rank_candidates`.
    """
    first, *rest = rank_candidates(paths, spec, select, trials)
    among, objectives = quantity(len(rest) + 1, "trial"), selection_objectives(spec, select)
    if len(objectives) > 1:
        names = ", ".join(f"{mode} {name}" for name, mode in objectives.items())
        return Selection(first, f"the {select.rule} of a Pareto front of {among} ({names})")
    word = "lowest" if spec.mode == "min" else "highest"
    if first.mean is not None:
        spread = "" if first.half_width is None else f" ± {first.half_width:.3g}"
        over = f"mean over {len(first.seed_steps)} seeds{first.at_steps}, {first.mean:.5g}{spread},"
        return Selection(first, f"its {select.at} {spec.metric}'s {over} is the {word} of {among}")
    if equal := [e.record.id for e in rest if e.value == first.value]:
        tied = f"{first_few([first.record.id, *equal])} share the {word} {select.at} {spec.metric}"
        return Selection(first, f"{tied} of {among}, and it is the first of them")
    return Selection(first, f"its {select.at} {spec.metric} is the {word} of {among}")


def selection_objectives(spec: SweepSpec, select: SelectSpec) -> dict[str, str]:
    """Metrics and modes that the selection compares: its own, or those of the search."""
    return dict(select.objectives) or {o.metric: o.mode for o in spec.objectives}


def smoothed(values: Sequence[float], weight: float) -> float:
    """The last value of the bias-corrected exponential moving average.

    The correction is that of Adam (Kingma and Ba 2015): the average of a constant is the constant.

    Args:
        values: by ascending step, at least one.
        weight: of the past values; 0 gives the last value.
    """
    average = 0.0
    for value in values:
        average = weight * average + (1 - weight) * value
    return average / (1 - weight ** len(values))


def value_of(reports: Sequence[Report], name: str, mode: str, select: SelectSpec) -> float | None:
    """The value to compare; None if there is no finite one, or if the trial diverged at the end."""
    values = [r.metrics[name] for r in reports if name in r.metrics]
    finite = [v for v in values if math.isfinite(v)]
    if not finite:
        return None
    if select.at == "best":
        return min(finite, key=lambda value: cost(value, mode))
    if not math.isfinite(values[-1]):
        return None
    return values[-1] if select.at == "last" else smoothed(finite, select.smoothing)


def describe_winner(paths: SweepPaths, spec: SweepSpec, choice: Selection) -> dict[str, Any]:
    """The winner as plain data: trial, values, configuration, checkpoint, and why it won."""
    line = choice.line
    checkpoint = paths.trial(line.record.id).newest_checkpoint()
    names = selection_objectives(spec, spec.select)
    described: dict[str, Any] = {
        "sweep": paths.name,
        "trial": line.record.id,
        "metric": spec.metric,
        "mode": spec.mode,
        "value": line.value,
        "values": {name: line.values.get(name) for name in (spec.metric, *names)}
        | {spec.metric: line.value},
        "step": line.step,
        "why": choice.why,
        "confirmed": choice.confirmed,
        "params": line.record.params,
        "config": line.record.config,
        "seed": line.record.seed,
        "checkpoint": str(checkpoint) if checkpoint else None,
    }
    if spec.select.objectives:
        described["front"] = [
            {"trial": one.record.id, "values": {name: one.values[name] for name in names}}
            for one in rank_candidates(paths, spec, spec.select)
        ]
    return described
