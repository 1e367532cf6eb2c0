"""Reads what a sweep over small sizes says of the configuration of a large one."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from results.analysis.leaderboard import summarize
from results.analysis.pareto import cost
from results.analysis.scaling.loss import NEEDED, LossLaw, fit_loss_law, frontier
from results.analysis.scaling.optimum import Optima, SizeTrials, fit_optima, needed_trials
from results.analysis.scaling.rules import Rule, Transfer, fit_rule
from results.paths import SweepPaths
from results.records.trial import TrialRecord, TrialState, read_trials_with_reports
from search_spaces.errors import UserError
from search_spaces.nested import flattened, same, show
from search_spaces.spec.sweep import SweepSpec
from trainables.config import TrainableConfig
from trainables.registry import resolve_for

_FARTHEST = 10.0
"""Times the largest measured size, or compute, up to which a law is believed."""
_CONSTANT = {"mup": ("hidden_size",), "completep": ("hidden_size", "num_layers")}
"""Size parameters in which the best settings are constant, by `parametrization`."""
_DECISIVE = ("parametrization", "base_hidden_size", "base_num_layers", "optimizer")
"""Settings of which each value has rules of its own."""
_HARMLESS = ("init_seed", "eval_every", "eval_sequences", "dtype", "compile", "micro_batch_size")


@dataclass(frozen=True)
class Target:
    """The large configuration.

    Attributes:
        spec: of its sweep file.
        params: searched parameters of one of its trials, by dotted name.
    """

    spec: SweepSpec
    params: Mapping[str, Any]


@dataclass(frozen=True)
class _Roles:
    """What the parameters of a sweep are for a target.

    Attributes:
        sizes: names of sizes.
        matched: names of those whose trials must have the target's value.
        logs: those to predict, and whether by their logarithm.
        open: those without a rule, which stay searched.
    """

    sizes: Collection[str]
    matched: Collection[str]
    logs: Mapping[str, bool]
    open: Collection[str]


def read_transfer(
    paths: SweepPaths, spec: SweepSpec, target: Target, *, beyond: bool = False
) -> Transfer:
    """Fit the rules of a sweep, and apply them to a target.

    Only trials that were completed count.

    Args:
        paths, spec: of the sweep.
        target: the large configuration.
        beyond: extrapolate farther than 10 times.

    Raises:
        UserError: no parameter has a rule, or the target is of another kind or too far.
    """
    roles = _roles(spec, target.spec)
    config, wanted = _settings(target.spec, target.spec.nest(target.params))
    trials = [
        (record, value)
        for record, value in _complete(paths, spec)
        if all(same(record.params.get(name), wanted[name]) for name in roles.matched)
    ]
    if not trials:
        raise UserError(f"{paths.name}: no complete trial is like the target")
    notes = [f"{name}: no rule: its values are no numbers" for name in roles.open]
    notes += _differences(_settings(spec, trials[0][0].config)[1], wanted, spec.domains())
    sizes, few = _by_size(spec, trials, roles)
    if len(sizes) < 2:
        raise UserError(f"{paths.name}: 2 sizes with enough trials are needed", *few)
    goal = {name: float(wanted[name]) for name in roles.sizes}
    for name, value in goal.items():
        largest = max(size.size[name] for size in sizes)
        if problem := _too_far(f"{name} {value:g}", value / largest, beyond):
            raise UserError(problem)
    optima, rules, problems = fit_optima(sizes), dict[int, Rule](), list[str]()
    constant = _CONSTANT.get(str(wanted.get("parametrization")), ())
    for place, (name, log) in enumerate(roles.logs.items()):
        try:
            rules[place] = fit_rule(optima, place, name, log, goal, constant)
        except UserError as e:
            problems += e.problems
    if not rules:
        raise UserError(*(f"{paths.name}: {line}" for line in [*problems, *few]))
    loss, why = _loss_law(spec, optima, _compute(config), beyond)
    return Transfer(goal, optima, rules, [*notes, *few, *problems, *why], loss)


def _settings(spec: SweepSpec, config: Mapping[str, Any]) -> tuple[TrainableConfig, dict[str, Any]]:
    """The checked configuration, and all its values, defaults too, by dotted name."""
    checked = resolve_for(spec).Config.model_validate(config)
    return checked, flattened({**config, **checked.model_dump()})


def _roles(spec: SweepSpec, target: SweepSpec) -> _Roles:
    """A parameter is a size if it has listed numbers, and the target does not search it.

    Raises:
        UserError: there is no size, or nothing to predict.
    """
    if (spec.trainable, spec.objectives) != (target.trainable, target.objectives):
        raise UserError(f"{spec.name} and {target.name} differ in trainable, metric or mode")
    sizes, matched, logs, unruled = list[str](), list[str](), dict[str, bool](), list[str]()
    for name, domain in spec.domains().items():
        values = domain.categories
        numeric = all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in values)
        listed = domain.is_categorical or domain.integer or domain.q is not None
        fixed = flattened(target.fixed).get(name)
        if name in target.domains() or (not listed and fixed is None):
            if numeric:
                logs[name] = domain.log or (bool(values) and min(values) > 0)
            else:
                unruled.append(name)
        elif not listed:
            raise UserError(f"{target.name} fixes {name} at {show(fixed)}: predict or fix it")
        else:
            (sizes if numeric else matched).append(name)
    if not sizes:
        raise UserError(
            f"{spec.name}: no size in its space: a parameter with listed numbers, like "
            f"hidden_size: {{grid_search: [32, 64, 128]}}, which {target.name} does not search"
        )
    if not logs:
        raise UserError(f"{spec.name}: no parameter to predict for {target.name}")
    return _Roles(sizes, matched, logs, unruled)


def _complete(paths: SweepPaths, spec: SweepSpec) -> Iterator[tuple[TrialRecord, float]]:
    """The complete trials with a value, and their cost; lower is better."""
    for record, reports in read_trials_with_reports(paths):
        value = summarize(record, reports, spec.metric, spec.mode).value
        if record.state is TrialState.COMPLETED and value is not None:
            yield record, cost(value, spec.mode)


def _differences(
    known: Mapping[str, Any], wanted: Mapping[str, Any], searched: Collection[str]
) -> list[str]:
    """What else of the target is not as in the sweep, in one line.

    Raises:
        UserError: it has another parametrization or optimizer.
    """
    changed = {
        name: f"{name} {show(known.get(name))} → {show(value)}"
        for name, value in wanted.items()
        if name not in searched and name not in _HARMLESS and not same(known.get(name), value)
    }
    if wrong := [changed[name] for name in _DECISIVE if name in changed]:
        raise UserError(f"the target is not trained as the sweep: {', '.join(wrong)}")
    return [f"without evidence: {', '.join(changed.values())}"] if changed else []


def _by_size(
    spec: SweepSpec, trials: Sequence[tuple[TrialRecord, float]], roles: _Roles
) -> tuple[list[SizeTrials], list[str]]:
    """The trials of each size, ascending, and the sizes with too few of them, a line each."""
    found: dict[tuple[float, ...], list[tuple[TrialRecord, float]]] = {}
    for record, value in trials:
        if all(name in record.params for name in (*roles.sizes, *roles.logs)):
            key = tuple(float(record.params[name]) for name in roles.sizes)
            found.setdefault(key, []).append((record, value))
    needed, sizes, few = needed_trials(len(roles.logs)), list[SizeTrials](), list[str]()
    for key, group in sorted(found.items()):
        points = [
            [math.log(r.params[n]) if log else float(r.params[n]) for n, log in roles.logs.items()]
            for r, _ in group
        ]
        spent = {_compute(_settings(spec, record.config)[0]) for record, _ in group}
        size = SizeTrials(
            dict(zip(roles.sizes, key, strict=True)),
            np.array(points),
            np.array([value for _, value in group]),
            spent.pop() if len(spent) == 1 else None,
        )
        if len(group) < needed:
            few.append(f"left out: {size}: complete trials {len(group)}, needed {needed}")
        else:
            sizes.append(size)
    return sizes, few


def _compute(config: TrainableConfig) -> float | None:
    """FLOP of a whole training: 6 for each weight and token; None if the size is not known."""
    parts = [getattr(config, n, None) for n in ("num_parameters", "batch_size", "max_steps")]
    if None in parts:
        return None
    return 6.0 * math.prod(map(float, parts)) * float(getattr(config, "sequence_length", 1))


def _too_far(what: str, ratio: float, beyond: bool) -> str | None:
    if ratio <= _FARTHEST or beyond:
        return None
    return f"{what} is {ratio:.3g} times the largest measured; {_FARTHEST:g} at most, or --beyond"


def _loss_law(
    spec: SweepSpec, optima: Optima, wanted: float | None, beyond: bool
) -> tuple[LossLaw | None, list[str]]:
    """The law of the loss against compute; or None, and why, in a line."""
    spent, losses = [size.compute for size in optima.sizes], optima.losses
    why: str | None = None
    if spec.mode != "min" or min(losses) <= 0:
        why = "the law is of losses above 0"
    elif wanted is None or None in spent:
        why = "the compute of its trials is not known"
    else:
        compute = np.array(spent, dtype=float)
        best = frontier(compute, losses)
        why = _too_far("the compute", wanted / compute.max(), beyond)
        if len(best) < NEEDED:
            why = f"sizes on the frontier of compute {len(best)}, needed {NEEDED}"
        if why is None:
            return fit_loss_law(compute[best], losses[best], wanted), []
    return None, [f"{spec.metric} is not extrapolated: {why}"]
