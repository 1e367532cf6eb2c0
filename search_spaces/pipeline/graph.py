"""Which stage comes after which, and in which order they run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from search_spaces.nested import KeyPath
from search_spaces.pipeline.references import (
    folder_references,
    metric_reference,
    model_reference,
)
from search_spaces.pipeline.stages import Stage, TrainStage

Stages = Mapping[str, Stage]
"""The stages by name, in file order."""


def named_stages(stage: Stage) -> Iterator[tuple[KeyPath, str]]:
    """The stages that a stage's keys name, with the path of each key; not those of choose_by."""
    for index, name in enumerate(stage.after or ()):
        yield ("from", index), name
    for key in stage.models:
        if (model := model_reference(getattr(stage, key))) is not None:
            yield (key,), model.stage
    if (of := getattr(stage, "of", None)) is not None:
        yield ("of",), of
    for name, value in stage.tie.items() if isinstance(stage, TrainStage) else ():
        yield ("tie", name), value.partition(".")[0]
    base: KeyPath = ("sweep", "fixed") if isinstance(stage, TrainStage) else ("command",)
    for path, name in folder_references(stage.texts):
        yield (*base, *path), name


def dependencies(name: str, stages: Stages) -> tuple[str, ...]:
    """The stages that a stage needs, in file order; see `Stage.after`."""
    stage, order = stages[name], list(stages)
    needed = {other for _, other in named_stages(stage)}
    if not needed and stage.after is None and order.index(name):
        needed = {order[order.index(name) - 1]}
    for key in stage.models:
        model = model_reference(getattr(stage, key))
        if model is not None and model.stage in stages:
            needed |= set(_behind(name, model.stage, model.role, stages))
    return tuple(other for other in order if other in needed)


def _behind(name: str, owner: str, role: str, stages: Stages) -> Iterator[str]:
    """The stages that decide which model of `owner` has a role, for a stage."""
    order, train = list(stages), stages[owner]
    if role == "winner" and isinstance(train, TrainStage) and train.choose_by:
        yield metric_reference(train.choose_by).stage
    kind = {"winner": "confirm", "soup": "average"}.get(role)
    above = order[: order.index(name)] if role == "winner" else order
    for other in above:
        if stages[other].kind == kind and getattr(stages[other], "of", None) == owner:
            yield other


def find_cycle(stages: Stages) -> list[str]:
    """The names of stages that wait for each other, the first one again at the end; or none."""
    done: set[str] = set()

    def visit(name: str, path: list[str]) -> list[str]:
        if name in path:
            return [*path[path.index(name) :], name]
        if name in done or name not in stages:
            return []
        for other in dependencies(name, stages):
            if found := visit(other, [*path, name]):
                return found
        done.add(name)
        return []

    return next((found for name in stages if (found := visit(name, []))), [])


def in_order(stages: Stages) -> list[str]:
    """The stages, each behind those that it needs; otherwise in file order."""
    found: dict[str, None] = {}

    def add(name: str) -> None:
        for other in dependencies(name, stages):
            add(other)
        found[name] = None

    for name in stages:
        if name not in found:
            add(name)
    return list(found)
