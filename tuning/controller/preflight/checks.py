"""Checks before anything starts: secrets, scheduler, workers, and sampled configurations."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from search_spaces.domains.conditional import ComputedValue, Leaf, parameters
from search_spaces.domains.domain import Domain
from search_spaces.domains.normal import SPREAD
from search_spaces.domains.parser import fixed_formulas
from search_spaces.errors import UserError, suggest
from search_spaces.expressions import parse
from search_spaces.formulas.constraints import quoting_hint
from search_spaces.layout import Layout
from search_spaces.loading.explain import MAX_PROBLEMS
from search_spaces.loading.sweep_file import LoadedSweep
from search_spaces.nested import KeyPath, dotted, walk
from search_spaces.redaction import holds_secret
from search_spaces.spec.layout import DDP
from search_spaces.spec.search import ONE_METRIC, WEIGH_COST
from search_spaces.spec.sweep import ENV_FIELDS, SweepSpec
from trainables.config import Problem
from trainables.registry import resolve
from tuning.controller.preflight.relative_paths import relative_problems, with_absolute_fixed
from tuning.controller.preflight.samples import SAMPLES, sample
from tuning.controller.preflight.trainables import (
    code_problems,
    config_problems,
    layout_problems,
    setting_problems,
    worker_problems,
)
from tuning.controller.resources.layouts import choice_of, first_fitting, worker_memory
from tuning.controller.resources.trial_layouts import NO_MEMORY
from tuning.search.auto import choose_searcher

Problems = list[tuple[KeyPath, str]]
"""Mistakes and their places in the sweep file."""
Sampled = list[tuple[dict[str, Any], dict[str, Any]]]
"""Parameters by dotted name, and the whole configuration that they make."""


def preflight(
    loaded: LoadedSweep, *, files: bool = False, begun: bool = False
) -> list[dict[str, Any]]:
    """Sample configurations and check each against the trainable.

    Args:
        loaded: the sweep file.
        files: whether the trials run on this machine, which must have the files of their data.
        begun: whether the sweep has begun, perhaps with another version: settings without effect
            are no mistake then.

    Returns:
        The sampled parameters.

    Raises:
        UserError: all mistakes at once, each with its line of the sweep file.
    """
    sampled = sample(loaded.spec, SAMPLES)
    try:
        spec = loaded.spec if begun else with_absolute_fixed(loaded)
        configs = [spec.nest(params) for params in sampled]
        pairs = list(zip(sampled, configs, strict=True))
        found = [
            *_secrets(spec),
            *_search_problems(spec),
            *_notify_problems(spec),
            *_monitoring_problems(spec),
            *_population_problems(spec),
            *(_layout_problems(spec, pairs) or _worker_problems(spec, pairs)),
            *_config_problems(spec, pairs, files),
            *(() if begun else _located(spec, pairs, partial(relative_problems, loaded), ())),
            *_code_problems(spec, configs),
            *(() if begun else setting_problems(resolve(spec.trainable), spec, configs)),
            *(() if begun else _clock_problems(spec, configs)),
        ]
    except UserError as e:  # of the trainable itself
        where = loaded.source.where(code_key(loaded.spec))
        raise UserError(*(f"{where}: {line}" for line in e.problems)) from e
    if found:
        problems = [loaded.source.problem(path, text) for path, text in found]
        raise UserError(*(p.message for p in sorted(problems, key=lambda p: p.order)))
    return sampled


def _secrets(spec: SweepSpec) -> Problems:
    """Values that look like secrets: they would be written to the sweep folder and to MLflow."""
    data = spec.model_dump(mode="json")
    ours = "write ${NAME} in its place, and set that variable"
    other = "let the training code read it from an environment variable"
    problem = "holds a secret, which would be written down"
    return [
        (path, f"{problem}; {ours if path in ENV_FIELDS else other}")
        for path, value in walk(data)
        if holds_secret(next((str(p) for p in reversed(path) if isinstance(p, str)), ""), value)
    ]


def _search_problems(spec: SweepSpec) -> Problems:
    """Settings that the searcher would ignore, or at which it would fail."""
    name = spec.search.name
    if name in ONE_METRIC and len(spec.objectives) > 1:
        return [(("search", "name"), f"{name} takes one metric; nsga2 and tpe take several")]
    if spec.search.cost_aware and (choice := choose_searcher(spec)).name not in WEIGH_COST:
        return [(("search", "cost_aware"), f"{choice} does not weigh cost; mfgp does")]
    return []


def _notify_problems(spec: SweepSpec) -> Problems:
    """A program that is not there would be missed when the sweep has something to say."""
    program = spec.notify.command[0] if spec.notify.command else None
    if program is None or shutil.which(program):
        return []
    return [(("notify", "command"), f"no such program, or not executable: {program}")]


def _monitoring_problems(spec: SweepSpec) -> Problems:
    """Files and folders that the exporter needs, and the library."""
    monitoring = spec.monitoring
    if not monitoring.enabled:
        return []
    if find_spec("prometheus_client") is None:
        return [(("monitoring",), "needs: pip install 'tune-platform[monitoring]'")]
    found: Problems = []
    for name in ("certificate", "key", "client_ca"):
        file = getattr(monitoring, name)
        if file is not None and not Path(file).is_file():
            found.append((("monitoring", name), f"no such file: {file}"))
    folder = monitoring.textfile
    if folder is not None and not (Path(folder).is_dir() and os.access(folder, os.W_OK)):
        found.append((("monitoring", "textfile"), f"no folder that can be written: {folder}"))
    return found


def _population_problems(spec: SweepSpec) -> Problems:
    """Population based training copies checkpoints, which not every trainable and mirror allows."""
    name = spec.scheduler.name
    if name not in ("pbt", "pb2"):
        return []
    found: Problems = []
    trainable = resolve(spec.trainable)
    if not trainable.is_known:
        problem = f"copies checkpoints, but only a {trainable.kind} itself can read its own"
        advice = "use asha, or write the loop as a class"
        found.append((("scheduler", "name"), f"{name} {problem}; {advice}"))
    if spec.checkpoint.mirror is not None:
        problem = "copies checkpoints within the sweep folder, which are not mirrored"
        found.append((("checkpoint", "mirror"), f"{name} {problem}; remove this key, or use asha"))
    return found


def _code_problems(spec: SweepSpec, configs: list[dict[str, Any]]) -> Problems:
    """Mistakes in the training code, and metrics that it does not report."""
    trainable = resolve(spec.trainable)
    found: Problems = [(code_key(spec), p) for p in code_problems(trainable)]
    reported = {m for config in configs for m in trainable.reported_metrics(config)}
    missing = [o.metric for o in spec.objectives if o.metric not in reported]
    for name in missing if reported else ():
        problem = f"{spec.trainable} does not report '{name}'{suggest(name, reported)}"
        found.append((("metric",), problem))
    formulas = [parse(text) for text in spec.outcome_constraints] if reported else []
    for i, formula in enumerate(formulas):
        for name in (name for name in formula.names if name not in reported):
            hint = quoting_hint(formula, reported, "metric") or suggest(name, reported)
            problem = f"{spec.trainable} does not report '{name}'{hint}"
            found.append((("outcome_constraints", i), problem))
    return found


def _clock_problems(spec: SweepSpec, configs: list[dict[str, Any]]) -> Problems:
    """A clock that the training code does not report: its steps would count in its place."""
    trainable, clock = resolve(spec.trainable), spec.scheduler.time_attr
    reported = {m for config in configs for m in trainable.reported_metrics(config)}
    if not reported or clock in {*reported, "step", trainable.clock}:
        return []
    problem = f"{spec.trainable} does not report '{clock}'; step counts its {trainable.clock}s"
    return [(("scheduler", "time_attr"), problem)]


def _config_problems(spec: SweepSpec, sampled: Sampled, files: bool) -> Problems:
    """Every mistake once, by its place in the file.

    If a range breaks a rule, the message has one value: the bound, as written in the file.
    """
    seen: dict[tuple[KeyPath, str], str] = {}
    trainable = resolve(spec.trainable)
    for params, config in reversed(sampled):
        if len(seen) >= MAX_PROBLEMS:
            break
        for path, problem in config_problems(trainable, config, files=files):
            place, leaf = locate(spec, path or first_named(problem, config), params)
            categorical = isinstance(leaf, Domain) and leaf.is_categorical
            rule = problem if categorical else problem.partition(", got ")[0]
            if isinstance(leaf, ComputedValue) and "whole number" in problem:
                problem += "; round(…), ceil(…) and floor(…) give one"
            if isinstance(leaf, Domain) and leaf.normal is not None:
                problem += f"; {leaf.kind} reaches from mean - {SPREAD} sd to mean + {SPREAD} sd"
            seen.setdefault((place, rule if path else "they fit together"), problem)
    return [(place, problem) for (place, _), problem in seen.items()]


def _worker_problems(spec: SweepSpec, sampled: Sampled) -> Problems:
    """Parameters that cannot be shared by each number of workers that a trial may have."""
    resources, trainable = spec.resources, resolve(spec.trainable)
    counts = [
        1 if resources.chooses_layout else resources.data_parallel(count)
        for count in range(resources.min_workers, resources.max_workers + 1)
    ]
    problems = partial(worker_problems, trainable, workers=counts)
    return _located(spec, sampled, problems, ("resources", "workers"))


def _layout_problems(spec: SweepSpec, sampled: Sampled) -> Problems:
    """Layouts that the workers do not make, or that a configuration does not fit."""
    resources, place = spec.resources, ("resources", "layout")
    if resources.layout == DDP:
        return []
    if resources.max_workers == 1:
        return [(place, "has no effect with one worker; set workers, or leave it out")]
    if isinstance(resources.layout, str):
        return _choice_problems(spec, [config for _, config in sampled])
    counts = range(resources.min_workers, resources.max_workers + 1)
    try:
        layouts = [resources.layout.resolve(count) for count in counts]
    except ValueError as e:
        return [(place, str(e))]
    trainable = resolve(spec.trainable)

    def problems(config: Mapping[str, Any]) -> Iterator[Problem]:
        for layout in layouts:
            yield from layout_problems(trainable, config, layout)

    return _located(spec, sampled, problems, place)


def _located(
    spec: SweepSpec,
    sampled: Sampled,
    problems: Callable[[Mapping[str, Any]], Iterable[Problem]],
    place: KeyPath,
) -> Problems:
    """The first problem of each place in the file; `place` has those of no hyperparameter."""
    seen = dict[KeyPath, str]()
    for params, config in sampled:
        for path, problem in problems(config):
            seen.setdefault(locate(spec, path, params)[0] if path else place, problem)
    return list(seen.items())


def _choice_problems(spec: SweepSpec, configs: list[dict[str, Any]]) -> Problems:
    """Why `layout: auto` cannot choose for one of the configurations."""
    place: KeyPath = ("resources", "layout")
    trainable = resolve(spec.trainable)
    if (memory := worker_memory(spec.resources)) is None:
        return [(place, NO_MEMORY)]
    for config in configs:
        if trainable.Config.problems(config):
            continue  # they are told by their own names
        checked = trainable.Config.model_validate(config)
        if checked.layout_memory(Layout(), on_gpu=memory.on_gpu) is None:
            axis = trainable.axes[0]
            few = len(trainable.axes) == 1
            advice = f"it follows {axis} only; leave it out" if few else "write the axes"
            return [(place, f"auto does not know the memory of this {spec.trainable}; {advice}")]
        if first_fitting(spec, config, memory) is None:
            return [(place, choice_of(spec, config, memory).problem)]
    return []


def locate(
    spec: SweepSpec, path: tuple[str, ...], params: dict[str, Any]
) -> tuple[KeyPath, Leaf | None]:
    """The place of a hyperparameter in the sweep file, and its leaf of the space or formula."""
    name = dotted(path)
    for leaf in parameters(spec.space):
        if all(params.get(chooser) == label for chooser, label in leaf.when) and (
            f"{name}.".startswith(f"{leaf.name}.") or leaf.name.startswith(f"{name}.")
        ):
            return ("space", *leaf.path), leaf.leaf
    if path:
        return ("fixed", *path), dict(fixed_formulas(spec.fixed)).get(name)
    return code_key(spec), None


def first_named(problem: str, config: dict[str, Any]) -> tuple[str, ...]:
    """The first hyperparameter that a message names."""
    return tuple(word for word in re.findall(r"\w+", problem) if word in config)[:1]


def code_key(spec: SweepSpec) -> KeyPath:
    """The key that names the training code."""
    return ("command",) if spec.command else ("trainable",)
