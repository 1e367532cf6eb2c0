"""Which stage comes after which, in which order they run, and the rules between them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from search_spaces.errors import suggest
from search_spaces.nested import KeyPath
from search_spaces.pipeline.references import (
    ModelReference,
    folder_references,
    looks_like_reference,
    metric_reference,
    model_reference,
)
from search_spaces.pipeline.stages import Stage, TrainStage
from search_spaces.positions import Problem, Source

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


_Problems = Iterator[tuple[KeyPath, str]]


def broken_rules(stages: Stages, source: Source) -> list[Problem]:
    """Every mistake: unknown stages, models of stages that have none, metrics of no later stage."""
    found = []
    for index, stage in enumerate(stages.values()):
        for path, text in (*_unknown(stage, stages), *_of_model(stage, stages)):
            found.append(source.problem(("stages", index, *path), text))
        if isinstance(stage, TrainStage) and not found:
            for path, text in (*_choice(stage, stages), *_ties(stage, stages)):
                found.append(source.problem(("stages", index, *path), text))
    return found


def _unknown(stage: Stage, stages: Stages) -> _Problems:
    for path, name in named_stages(stage):
        if name not in stages:
            yield path, f"no stage '{name}'{suggest(name, stages)}"
        elif name == stage.name:
            yield path, f"{name} names itself"


def _of_model(stage: Stage, stages: Stages) -> _Problems:
    of: str = getattr(stage, "of", "")
    if of in stages and stages[of].kind != "train":
        yield ("of",), f"{of} is no train stage, but {stages[of].kind}"
    for key in stage.models:
        text = getattr(stage, key)
        if text is None:
            continue
        model = model_reference(text)
        if model is None and (stage.kind != "train" or looks_like_reference(text, stages)):
            example = f"{text.partition('.')[0]}.winner"
            yield (key,), f"names no model, got '{text}'; a stage's model is like {example}"
        elif model is not None and model.stage in stages:
            yield from (((key,), line) for line in _role(stage, model, stages))


def _role(stage: Stage, model: ModelReference, stages: Stages) -> Iterator[str]:
    owner = stages[model.stage]
    if owner.kind != "train":
        yield f"{owner.name} has no model: it is a stage of kind {owner.kind}, not train"
    elif model.role == "top" and stage.kind != "train":
        yield f"one model is needed, and top({model.count}) are several; write {owner.name}.winner"
    elif model.role == "soup" and not any(
        one.kind == "average" and getattr(one, "of", None) == owner.name for one in stages.values()
    ):
        yield f"no stage averages {owner.name}; add one: kind: average, of: {owner.name}"


def _choice(stage: TrainStage, stages: Stages) -> _Problems:
    """`choose_by` names a stage that tries several models of this one."""
    if stage.choose_by is None:
        return
    judge = metric_reference(stage.choose_by).stage
    if judge not in stages:
        yield ("choose_by",), f"no stage '{judge}'{suggest(judge, stages)}"
        return
    begins = model_reference(getattr(stages[judge], "init", None))
    if begins is None or (begins.stage, begins.role) != (stage.name, "top"):
        needs = f"it needs init: {stage.name}.top(3)"
        yield ("choose_by",), f"{judge} does not try several models of {stage.name}; {needs}"


def _ties(stage: TrainStage, stages: Stages) -> _Problems:
    for name, value in stage.tie.items():
        owner, dot, parameter = value.partition(".")
        if not dot or not parameter:
            text = f"needs a parameter of a stage, like pretrain.{name}, got '{value}'"
            yield ("tie", name), text
        elif owner in stages and not isinstance(stages[owner], TrainStage):
            kind = stages[owner].kind
            yield ("tie", name), f"{owner} has no parameters: it is a stage of kind {kind}"
