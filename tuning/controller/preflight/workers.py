"""Checks of `resources`: numbers of workers and layouts that every configuration fits."""

from __future__ import annotations

from typing import Any

from search_spaces.layout import Layout
from search_spaces.nested import KeyPath
from search_spaces.spec.layout import DDP
from search_spaces.spec.sweep import SweepSpec
from trainables.registry import resolve
from tuning.controller.preflight.places import locate
from tuning.controller.resources.layouts import choice_of, first_fitting
from tuning.controller.resources.trial_layouts import NO_MEMORY
from tuning.controller.resources.worker_memory import worker_memory


def worker_problems(
    spec: SweepSpec, sampled: list[dict[str, Any]], configs: list[dict[str, Any]]
) -> list[tuple[KeyPath, str]]:
    """Parameters that cannot be shared by each number of workers that a trial may have."""
    resources = spec.resources
    counts = [
        1 if resources.chooses_layout else resources.data_parallel(count)
        for count in range(resources.min_workers, resources.max_workers + 1)
    ]
    trainable, seen = resolve(spec.trainable), dict[KeyPath, str]()
    for params, config in zip(sampled, configs, strict=True):
        for path, problem in trainable.worker_problems(config, counts):
            place = locate(spec, path, params)[0] if path else ("resources", "workers")
            seen.setdefault(place, problem)
    return list(seen.items())


def layout_problems(
    spec: SweepSpec, sampled: list[dict[str, Any]], configs: list[dict[str, Any]]
) -> list[tuple[KeyPath, str]]:
    """Layouts that the workers do not make, or that a configuration does not fit."""
    resources, seen = spec.resources, dict[KeyPath, str]()
    if resources.layout == DDP:
        return []
    place: KeyPath = ("resources", "layout")
    if resources.max_workers == 1:
        return [(place, "has no effect with one worker; set workers, or leave it out")]
    if isinstance(resources.layout, str):
        return _choice_problems(spec, configs)
    counts, trainable = (
        range(resources.min_workers, resources.max_workers + 1),
        resolve(spec.trainable),
    )
    try:
        layouts = [resources.layout.resolve(count) for count in counts]
    except ValueError as e:
        return [(place, str(e))]
    for params, config in zip(sampled, configs, strict=True):
        for layout in layouts:
            for path, problem in trainable.layout_problems(config, layout):
                found = locate(spec, path, params)[0] if path else place
                seen.setdefault(found, problem)
    return list(seen.items())


def _choice_problems(spec: SweepSpec, configs: list[dict[str, Any]]) -> list[tuple[KeyPath, str]]:
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
