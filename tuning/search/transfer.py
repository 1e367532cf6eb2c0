"""Reads what a sweep over small sizes says of the configuration of a large one."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from results.analysis.leaderboard import summarize
from results.analysis.pareto import cost
from results.analysis.scaling.loss import NEEDED, LossLaw, fit_loss_law, frontier
from results.analysis.scaling.optimum import Optima, SizeTrials, fit_optima, needed_trials
from results.analysis.scaling.rules import Transfer, fit_rules
from results.paths import SweepPaths
from results.records.trial import TrialRecord, TrialState, read_trials_with_reports
from search_spaces.domains.domain import Domain
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


def read_transfer(
    paths: SweepPaths, spec: SweepSpec, target: SweepSpec, params: Mapping[str, Any], beyond: bool
) -> Transfer:
    """Fit the rules of a sweep, and apply them to a target.

    Args:
        paths, spec: of the sweep. Its complete trials count.
        target: the sweep of the large configuration.
        params: searched parameters of one of its trials, by dotted name.
        beyond: extrapolate farther than 10 times.

    Raises:
        UserError: no parameter has a rule, or the target is of another kind or too far.
    """
    if (spec.trainable, spec.objectives) != (target.trainable, target.objectives):
        raise UserError(f"{spec.name} and {target.name} differ in trainable, metric or mode")
    roles = {name: _role(name, domain, target) for name, domain in spec.domains().items()}
    logs = {name: role == "log" for name, role in roles.items() if role in ("log", "linear")}
    config, wanted = _settings(target, target.nest(params))
    goal = {name: float(wanted[name]) for name, role in roles.items() if role == "size"}
    if not goal or not logs:
        raise UserError(
            f"{spec.name}: no {'parameter to predict' if goal else 'size'}; a size has listed "
            f"numbers, as hidden_size: {{grid_search: [32, 64, 128]}}, and {target.name} fixes it"
        )
    like = {name: wanted[name] for name, role in roles.items() if role == "match"}
    trials = list(_complete(paths, spec, like))
    if not trials:
        raise UserError(f"{paths.name}: no complete trial is like the target")
    notes = _differences(_settings(spec, trials[0][0].config)[1], wanted, roles)
    sizes, few = _by_size(spec, trials, goal, logs)
    few += [f"{name}: no rule: not numbers" for name, role in roles.items() if role == "open"]
    if len(sizes) < 2:
        raise UserError(f"{paths.name}: 2 sizes with enough trials are needed", *few)
    _check_reach(goal, sizes, beyond)
    optima, constant = fit_optima(sizes), _CONSTANT.get(str(wanted.get("parametrization")), ())
    rules, problems = fit_rules(optima, logs, goal, constant)
    few += problems
    if not rules:
        raise UserError(*(f"{paths.name}: {line}" for line in few))
    loss, why = _loss_law(spec, optima, _compute(config), beyond)
    return Transfer(goal, optima, rules, [*notes, *few, *why], loss)


def _role(name: str, domain: Domain, target: SweepSpec) -> str:
    """What a parameter of the sweep is for a target: `log` or `linear` (to predict, by that scale),
    `open` (it stays searched), `size`, or `match` (trials with the target's value count)."""
    numeric = all(type(value) in (int, float) for value in domain.categories)
    listed, fixed = domain.is_categorical or domain.integer or domain.q, flattened(target.fixed)
    if name in target.domains() or not (listed or name in fixed):
        is_log = domain.log or (numeric and min(domain.categories, default=0) > 0)
        return "log" if is_log else "linear" if numeric else "open"
    if not listed:
        raise UserError(f"{target.name} fixes {name} at {show(fixed[name])}; leave it out")
    return "size" if numeric else "match"


def _settings(spec: SweepSpec, config: Mapping[str, Any]) -> tuple[TrainableConfig, dict[str, Any]]:
    """The checked configuration, and all its values, defaults too, by dotted name."""
    checked = resolve_for(spec).Config.model_validate(config)
    return checked, flattened({**config, **checked.model_dump()})


def _complete(
    paths: SweepPaths, spec: SweepSpec, like: Mapping[str, Any]
) -> Iterator[tuple[TrialRecord, float]]:
    """The complete trials with some parameters and a value, and their cost; lower is better."""
    for record, reports in read_trials_with_reports(paths):
        value = summarize(record, reports, spec.metric, spec.mode).value
        is_like = all(same(record.params.get(name), v) for name, v in like.items())
        if record.state is TrialState.COMPLETED and value is not None and is_like:
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
    spec: SweepSpec,
    trials: Sequence[tuple[TrialRecord, float]],
    names: Collection[str],
    logs: Mapping[str, bool],
) -> tuple[list[SizeTrials], list[str]]:
    """The trials of each size, ascending, and the sizes with too few of them, a line each."""
    found: dict[tuple[float, ...], list[tuple[TrialRecord, float]]] = {}
    for record, value in trials:
        if record.params.keys() >= {*names, *logs}:
            found.setdefault(tuple(record.params[name] for name in names), []).append(
                (record, value)
            )
    sizes, few = list[SizeTrials](), list[str]()
    for key, group in sorted(found.items()):
        params, needed = [r.params for r, _ in group], needed_trials(len(logs))
        points = [[math.log(p[n]) if log else p[n] for n, log in logs.items()] for p in params]
        spent = {_compute(_settings(spec, record.config)[0]) for record, _ in group}
        losses, compute = np.array([v for _, v in group]), spent.pop() if len(spent) == 1 else None
        size = SizeTrials(dict(zip(names, key, strict=True)), np.array(points), losses, compute)
        if len(group) < needed:
            few.append(f"left out: {size}: complete trials {len(group)}, needed {needed}")
        else:
            sizes.append(size)
    return sizes, few


def _compute(config: TrainableConfig) -> float | None:
    """FLOP of a whole training: 6 for each weight and token; None if the size is not known."""
    names = ("num_parameters", "batch_size", "max_steps")
    parts = [getattr(config, name, None) for name in names]
    known = [6.0, getattr(config, "sequence_length", 1), *(p for p in parts if p is not None)]
    return None if None in parts else math.prod(known)


def _check_reach(goal: Mapping[str, float], sizes: Sequence[SizeTrials], beyond: bool) -> None:
    for name, value in goal.items():
        largest = max(size.size[name] for size in sizes)
        if problem := _too_far(f"{name} {value:g}", value / largest, beyond):
            raise UserError(problem)


def _too_far(what: str, ratio: float, beyond: bool) -> str | None:
    if ratio <= _FARTHEST or beyond:
        return None
    return f"{what} is {ratio:.3g} times the largest measured; {_FARTHEST:g} at most, or --beyond"


def _loss_law(
    spec: SweepSpec, optima: Optima, wanted: float | None, beyond: bool
) -> tuple[LossLaw | None, list[str]]:
    """The law of the loss against compute; or None, and why, in a line."""
    spent, why = [size.compute for size in optima.sizes], None
    if spec.mode != "min" or min(optima.losses) <= 0:
        why = "the law is of losses above 0"
    elif wanted is None or None in spent:
        why = "the compute of its trials is not known"
    else:
        compute = np.array(spent, dtype=float)
        best = frontier(compute, optima.losses)
        if len(best) >= NEEDED:
            why = _too_far("the compute", wanted / compute.max(), beyond)
        else:
            why = f"sizes on the frontier of compute {len(best)}, needed {NEEDED}"
        if why is None:
            return fit_loss_law(compute[best], optima.losses[best], wanted), []
    return None, [f"{spec.metric} is not extrapolated: {why}"]
