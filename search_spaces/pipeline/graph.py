"""How stages name each other (`pretrain.winner`, `{data}/train.jsonl`), and their order."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from search_spaces.errors import suggest
from search_spaces.nested import KeyPath, walk
from search_spaces.pipeline.stages import Stage, TrainStage
from search_spaces.positions import Problem, Source

_MODEL = re.compile(r"([A-Za-z0-9][A-Za-z0-9_-]*)\.(?:(winner|soup)|top\(([1-9][0-9]{0,2})\))")
_FOLDER = re.compile(r"^\{([A-Za-z0-9][A-Za-z0-9_-]*)\}(?=/|$)")
OWN = "output"
"""`{output}` of a command: the folder of its own stage."""


@dataclass(frozen=True)
class ModelReference:
    """A model of another stage.

    Attributes:
        stage: its name.
        role: winner, soup, or top.
        count: of top; else 1.
    """

    stage: str
    role: str
    count: int = 1


def model_reference(text: str | None) -> ModelReference | None:
    """The model of a stage that a text names; None: it is a folder or a hub id."""
    found = _MODEL.fullmatch(text or "")
    if found is None:
        return None
    stage, role, count = found.groups()
    return ModelReference(stage, role or "top", int(count or 1))


def looks_like_reference(text: str, stages: Mapping[str, Any]) -> bool:
    """Whether a text begins with the name of a stage, or is in the form of a reference."""
    return model_reference(text) is not None or text.partition(".")[0] in stages


@dataclass(frozen=True)
class MetricReference:
    """`max sft.exact_match`: a metric of another stage; the mode is None if it is not given."""

    stage: str
    metric: str
    mode: str | None


def metric_reference(text: str) -> MetricReference:
    """The metric that `choose_by` names."""
    first, _, rest = text.rpartition(" ")
    stage, _, metric = rest.partition(".")
    return MetricReference(stage, metric, first or None)


def folder_references(values: Any) -> Iterator[tuple[KeyPath, str]]:
    """The stages that texts name as `{stage}/…`, with the path of each text."""
    for path, value in walk(values):
        if isinstance(value, str) and (found := _FOLDER.match(value)) and found[1] != OWN:
            yield path, found[1]


def with_folders(values: Any, folders: Mapping[str, str]) -> Any:
    """A copy of plain data with `{stage}` replaced by that stage's folder."""
    if isinstance(values, Mapping):
        return {key: with_folders(value, folders) for key, value in values.items()}
    if isinstance(values, list):
        return [with_folders(value, folders) for value in values]
    if isinstance(values, str) and (found := _FOLDER.match(values)) and found[1] in folders:
        return folders[found[1]] + values[found.end() :]
    return values


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
