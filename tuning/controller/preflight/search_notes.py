"""What a sweep compares unequally, and what it sets without an effect: lines for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from search_spaces.spec.select import mode_of_name
from search_spaces.spec.sweep import SweepSpec
from trainables.registry import resolve
from tuning.controller.preflight.samples import SAMPLES, sample
from tuning.search.auto import choose_scheduler, choose_searcher

_SEEDS = ("seed", "init_seed", "random_seed", "random_state")
_LENGTHS = {"step": "max_steps", "epoch": "epochs", "round": "rounds"}
"""Unit of a trial's clock to the hyperparameter that says when a trial ends by itself."""
_UNEQUAL = 4
"""Ratio of amounts of data from which trials are not compared equally at a step."""
_HALVING = ("asha", "asha_promote", "hyperband", "median")
_READERS = {
    "search": {"multivariate": "tpe", "constant_liar": "tpe", "population": "nsga2, nsga3"},
    "scheduler": {"interval": "pbt, pb2", "quantile": "pbt, pb2", "mutate": "pbt, pb2"},
}
"""By section and key: the searchers, or schedulers, that read it."""


def search_notes(spec: SweepSpec) -> Iterator[str]:
    """One line for each; the sweep is one that `preflight` has passed."""
    for metric, mode in ((o.metric, o.mode) for o in spec.objectives):
        if mode_of_name(metric) not in (None, mode):
            better = "less" if mode == "max" else "more"
            yield f"mode: {mode} {metric}, but by its name {better} of it is better"
    for name in (n for n in spec.domains() if n.rpartition(".")[2] in _SEEDS):
        mean = "replicates: 3 in its place compares configurations by their mean"
        yield f"space.{name}: the winner is the one with the luckiest seed; {mean}"
    trials, points = spec.budget.trials, len(spec.grid_points())
    if trials is not None and points > 1 and trials < points * spec.replicates:
        yield f"budget.trials: {trials} of the {points * spec.replicates} trials of its grids"
    yield from _unequal_progress(spec)
    yield from _settings_without_effect(spec)


def _unequal_progress(spec: SweepSpec) -> Iterator[str]:
    """Trials that are at different points of their training at a rung, or at the end."""
    trainable, scheduler = resolve(spec.trainable), spec.scheduler
    known, clock, max_t = bool(trainable.metric_names), scheduler.time_attr, scheduler.max_t
    unit = trainable.clock if clock == "step" and known else clock
    if max_t is None or unit not in _LENGTHS or (unit == "step" and not known):
        return  # a step of other code may be anything
    field, stops = _LENGTHS[unit], choose_scheduler(spec).name in _HALVING
    sampled = sample(spec, SAMPLES)  # those that preflight has passed
    configs = [trainable.Config.model_validate(spec.nest(params)) for params in sampled]
    if stops and unit == "step":
        yield from _unequal_steps(spec, configs)
    ends = {end for c in configs if isinstance(end := getattr(c, field, None), int)}
    if not ends or (unit == "step" and getattr(configs[0], "epochs", None) is not None):
        return
    if stops and len(ends) > 1 and field not in scheduler.per:
        yield f"scheduler: {field} is searched, so equal {unit}s are unequal parts of a training"
    elif stops and max(ends) < max_t:
        never = "; none is stopped" if scheduler.grace_period > max(ends) else ""
        yield f"scheduler.max_t: {max_t}, but trials end at {field} {max(ends)}{never}"
    elif min(ends) > max_t and getattr(configs[0], "schedule", "constant") != "constant":
        yield f"scheduler.max_t: {max_t}, but learning rates decay up to {field} {min(ends)}"


def _unequal_steps(spec: SweepSpec, configs: Sequence[object]) -> Iterator[str]:
    names = {"batch_size", "sequence_length"} - {*spec.scheduler.per}
    for name in sorted(names & spec.domains().keys()):
        amounts = [getattr(config, name, 1) for config in configs]
        if max(amounts) >= _UNEQUAL * min(amounts):
            yield f"scheduler: {name} is searched, so equal steps are unequal amounts of data"


def _settings_without_effect(spec: SweepSpec) -> Iterator[str]:
    chosen = {"search": choose_searcher(spec).name, "scheduler": choose_scheduler(spec).name}
    for section, name in chosen.items():
        given = getattr(spec, section)
        for key, readers in _READERS[section].items():
            if name not in readers and getattr(given, key) != type(given).model_fields[key].default:
                yield f"{section}.{key}: no effect with {name}; it is of {readers}"
