"""Reads what a sweep over small sizes says of the configuration of a large one."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from results.analysis import scaling
from results.analysis.leaderboard import summarize
from results.analysis.pareto import cost
from results.analysis.scaling import LossLaw, Optima, SizeTrials, Transfer
from results.paths import SweepPaths
from results.records.trial import TrialRecord, TrialState, read_trials, read_trials_with_reports
from search_spaces.errors import UserError
from search_spaces.nested import flattened, same, show
from search_spaces.spec.sweep import SweepSpec
from trainables.config import TrainableConfig
from trainables.registry import resolve_for

_FARTHEST, _TOO_FAR = 10.0, "the largest measured; 10 at most, or --beyond"
# size parameters in which the best settings are constant, by parametrization
_CONSTANT: Mapping[Any, Sequence[str]] = {
    "mup": ("hidden_size",),
    "completep": ("hidden_size", "num_layers"),
}
# settings of which each value has rules of its own, and those without an effect on them
_DECISIVE = ("parametrization", "base_hidden_size", "base_num_layers", "optimizer")
_HARMLESS = ("init_seed", "eval_every", "eval_sequences", "dtype", "compile", "micro_batch_size")


def read_transfer(
    paths: SweepPaths, spec: SweepSpec, target: SweepSpec, params: Mapping[str, Any], beyond: bool
) -> Transfer:
    """Fit the rules of a sweep to its complete trials, and apply them to `target`, a sweep that has
    a trial with `params`; farther than 10 times the measured sizes if it may go `beyond`.

    Raises:
        UserError: no parameter has a rule, or the target is of another kind or too far.
    """
    names, logs = _split(spec, target)
    config, wanted = _settings(target, target.nest(params))
    if lacking := [name for name in names if name not in wanted]:
        raise UserError(f"{target.name} has no {', '.join(lacking)}, a size of {spec.name}")
    goal = {name: float(wanted[name]) for name in names}
    sizes, problems = _read_sizes(paths, spec, names, logs)
    if len(sizes) < 2:
        raise UserError(f"{paths.name}: 2 sizes with enough trials are needed", *problems)
    notes = _differences(_settings(spec, read_trials(paths)[0].config)[1], wanted, spec.domains())
    if not beyond:
        _check_reach(goal, sizes)
    optima, constant = scaling.fit_optima(sizes), _CONSTANT.get(wanted.get("parametrization"), ())
    rules, unruled = scaling.fit_rules(optima, logs, goal, constant)
    problems += unruled
    if not rules:
        raise UserError(*(f"{paths.name}: {line}" for line in problems))
    law = _loss_law(optima, spec.mode, _compute(config), beyond)
    if isinstance(law, str):
        problems.append(f"{spec.metric} is not extrapolated: {law}")
    loss = law if isinstance(law, LossLaw) else None
    return Transfer(goal, optima, rules, notes + problems, loss)


def _split(spec: SweepSpec, target: SweepSpec) -> tuple[list[str], dict[str, bool]]:
    """The sizes of a sweep, with listed numbers that the target does not search; its parameters to
    predict, and whether by their logarithm. A sweep without one or the other is refused."""
    if (spec.trainable, spec.objectives) != (target.trainable, target.objectives):
        raise UserError(f"{spec.name} and {target.name} differ in trainable, metric or mode")
    sizes, logs, fixed = list[str](), dict[str, bool](), flattened(target.fixed)
    for name, domain in spec.domains().items():
        values, is_open = domain.categories or (domain.lower,), name in target.domains()
        if not all(type(value) in (int, float) for value in values):
            raise UserError(f"{name}: its values are not numbers; a sweep for a transfer fixes it")
        if (domain.is_categorical or domain.integer) and not is_open and min(values) > 0:
            sizes.append(name)
        elif name in fixed:
            raise UserError(f"{target.name} fixes {name} at {show(fixed[name])}; leave it out")
        else:
            logs[name] = domain.log or (domain.is_categorical and min(values) > 0)
    if not sizes or not logs:
        raise UserError(
            f"{spec.name}: no {'parameter to predict' if sizes else 'size'}; a size has listed "
            f"numbers, as hidden_size: {{grid_search: [32, 64, 128]}}, and {target.name} fixes it"
        )
    return sizes, logs


def _settings(spec: SweepSpec, config: Mapping[str, Any]) -> tuple[TrainableConfig, dict[str, Any]]:
    """The checked configuration, and all its values, defaults too, by dotted name."""
    checked = resolve_for(spec).Config.model_validate(config)
    return checked, flattened({**config, **checked.model_dump()})


def _differences(
    known: Mapping[str, Any], wanted: Mapping[str, Any], searched: Collection[str]
) -> list[str]:
    """What else of the target is not as in the sweep, in one line; refused if it is decisive."""
    changed = {
        name: f"{name} {show(known.get(name))} → {show(value)}"
        for name, value in wanted.items()
        if name not in searched and name not in _HARMLESS and not same(known.get(name), value)
    }
    if wrong := [changed[name] for name in _DECISIVE if name in changed]:
        raise UserError(f"the target is not trained as the sweep: {', '.join(wrong)}")
    return [f"without evidence: {', '.join(changed.values())}"] if changed else []


def _read_sizes(
    paths: SweepPaths, spec: SweepSpec, names: Sequence[str], logs: Mapping[str, bool]
) -> tuple[list[SizeTrials], list[str]]:
    """The trials of each size, ascending, and the sizes with too few of them, a line each."""
    groups: dict[tuple[float, ...], list[tuple[TrialRecord, float]]] = {}
    for record, reports in read_trials_with_reports(paths):
        value, params = summarize(record, reports, spec.metric, spec.mode).value, record.params
        complete = record.state is TrialState.COMPLETED and params.keys() >= {*names, *logs}
        if complete and value is not None:
            group = groups.setdefault(tuple(params[name] for name in names), [])
            group.append((record, cost(value, spec.mode)))
    sizes, few, needed = list[SizeTrials](), list[str](), len(logs) + scaling.SPARE_TRIALS
    for key, group in sorted(groups.items()):
        tried = [record.params for record, _ in group]
        points = [[math.log(p[n]) if log else p[n] for n, log in logs.items()] for p in tried]
        spent = {_compute(_settings(spec, record.config)[0]) for record, _ in group}
        losses, compute = np.array([v for _, v in group]), spent.pop() if len(spent) == 1 else None
        size = SizeTrials(dict(zip(names, key, strict=True)), np.array(points), losses, compute)
        if len(group) >= needed:
            sizes.append(size)
        else:
            few.append(f"left out: {size} has {len(group)} complete trials, needed {needed}")
    return sizes, few


def _compute(config: TrainableConfig) -> float | None:
    """FLOP of a whole training: 6 for each weight and token; None if the size is not known."""
    names = ("num_parameters", "batch_size", "max_steps")
    tokens, parts = getattr(config, "sequence_length", 1), [getattr(config, n, None) for n in names]
    return None if None in parts else 6.0 * tokens * math.prod(filter(None, parts))


def _check_reach(goal: Mapping[str, float], sizes: Sequence[SizeTrials]) -> None:
    for name, value in goal.items():
        if value > _FARTHEST * (largest := max(size.size[name] for size in sizes)):
            raise UserError(f"{name} {value:g} is {value / largest:.3g} times {_TOO_FAR}")


def _loss_law(optima: Optima, mode: str, at: float | None, beyond: bool) -> LossLaw | str:
    """The law of the loss against compute, or why there is none."""
    spent = [size.compute for size in optima.sizes if size.compute is not None]
    if mode != "min" or min(optima.losses) <= 0:
        return "the law is of losses above 0"
    if at is None or len(spent) < len(optima.sizes):
        return "the compute of its trials is not known"
    best = scaling.frontier(np.array(spent), optima.losses)
    if len(best) < scaling.FRONTIER:
        return f"sizes on the frontier of compute {len(best)}, needed {scaling.FRONTIER}"
    if at > _FARTHEST * max(spent) and not beyond:
        return f"the compute is {at / max(spent):.3g} times {_TOO_FAR}"
    return scaling.fit_loss_law(np.array(spent)[best], optima.losses[best], at)
