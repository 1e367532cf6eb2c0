"""Reads a pipeline file into checked stages with line numbers; `freeze` writes it back."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError
from ruamel.yaml import YAML

from search_spaces.errors import UserError, suggest
from search_spaces.files import read_regular
from search_spaces.limits import SECONDS, TooSlowError
from search_spaces.loading.explain import explain
from search_spaces.loading.overrides import apply_overrides
from search_spaces.loading.reader import Document, read_file, read_value
from search_spaces.loading.sweep_file import LoadedSweep, check_sweep
from search_spaces.nested import KeyPath, show
from search_spaces.pipeline.graph import broken_rules, find_cycle, in_order
from search_spaces.pipeline.stages import STAGES, PipelineHead, Stage, TrainStage
from search_spaces.positions import Problem, Source
from search_spaces.spec.base import Section, from_name

T = TypeVar("T", bound=Section)


@dataclass(frozen=True)
class LoadedPipeline:
    """A checked pipeline.

    Attributes:
        head: name and budget.
        stages: by name, in file order.
        sweeps: of the train stages, without what `init` and `tie` add.
        source: file and line of every key.
        directory: folder of relative paths.
        data: plain data of the whole, with the overrides and the sweeps of other files.
    """

    head: PipelineHead
    stages: Mapping[str, Stage]
    sweeps: Mapping[str, LoadedSweep]
    source: Source
    directory: Path
    data: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The pipeline's name."""
        return self.head.name

    @cached_property
    def order(self) -> list[str]:
        """The names of the stages in the order in which they run."""
        return in_order(self.stages)

    def problem(self, stage: str, key: KeyPath, text: str) -> Problem:
        """A problem with a key of a stage."""
        index = [raw["name"] for raw in self.data["stages"]].index(stage)
        return self.source.problem(("stages", index, *key), text)


def is_pipeline_file(path: Path) -> bool:
    """Whether a file has the key `stages`, which no sweep file has; YAML in braces is parsed."""
    try:
        text = read_regular(path).removeprefix(b"\xef\xbb\xbf")
        if text.lstrip().startswith(b"{"):
            return "stages" in read_file(path).data
        return re.search(rb"^([\"']?)stages\1[ \t]*:", text, re.MULTILINE) is not None
    except (UserError, OSError, TooSlowError, RecursionError):
        return False


def load_pipeline(path: Path, overrides: Sequence[str] = ()) -> LoadedPipeline:
    """Read and check a pipeline file, and the sweep files that it names.

    Args:
        path: of the YAML file.
        overrides: `stage.key=value` texts; the keys of a train stage are those of its sweep.

    Raises:
        UserError: all mistakes of the stages, one line each; else all mistakes of their sweeps.
    """
    try:
        document = read_file(path)
        head = _validate(PipelineHead, document.data, document.source)
        directory = Path(head.directory or path.absolute().parent)
        _override(document, overrides)
        head = _validate(PipelineHead, document.data, document.source)
        files = _inline(document, directory)
        stages = _stages(document)
        loaded = LoadedPipeline(head, stages, {}, document.source, directory, document.data)
        _raise([*document.problems, *broken_rules(stages, document.source)])
        if cycle := find_cycle(stages):
            chain = " → ".join(reversed(cycle))
            _raise([loaded.problem(cycle[0], (), f"stages wait for each other: {chain}")])
        return replace(loaded, sweeps=_sweeps(loaded, files))
    except TooSlowError:
        raise UserError(f"{path.name}: takes more than {SECONDS:g} s to read") from None
    except RecursionError:
        raise UserError(f"{path.name}: nested too deeply") from None


def freeze(pipeline: LoadedPipeline) -> str:
    """The pipeline as YAML that `load_pipeline` reads to an equal one, in any folder."""
    yaml, text = YAML(), io.StringIO()
    yaml.default_flow_style, yaml.allow_unicode, yaml.width = False, False, 2**31
    yaml.dump({**pipeline.data, "directory": str(pipeline.directory)}, text)
    return text.getvalue()


def _raise(problems: Sequence[Problem]) -> None:
    if problems:
        raise _error(problems)


def _error(problems: Sequence[Problem]) -> UserError:
    return UserError(*(p.message for p in sorted(problems, key=lambda p: p.order)))


def _validate(model: type[T], data: Any, source: Source) -> T:
    try:
        made: T = model.model_validate(data)
        return made
    except ValidationError as e:
        raise _error([problem for _, problem in explain(e, source, model)]) from None


def _stages(document: Document) -> dict[str, Stage]:
    found: dict[str, Stage] = {}
    problems: list[Problem] = []
    for index, raw in enumerate(document.data["stages"]):
        place = ("stages", index)
        kind = raw.get("kind") if isinstance(raw, dict) else None
        if not isinstance(kind, str) or kind not in STAGES:
            known = f", got {show(kind)}{suggest(kind, STAGES)}"
            text = f"must be one of {', '.join(STAGES)}{known if kind else ''}"
            problems.append(document.source.problem((*place, "kind"), text))
            continue
        try:
            stage = _validate(STAGES[kind], raw, below(document.source, place))
        except UserError as e:
            line = document.source.lines.get(place, 1)
            problems += [Problem((0, line), text) for text in e.problems]
            continue
        if stage.name in found:
            text = f"two stages have the name {stage.name}"
            problems.append(document.source.problem((*place, "name"), text))
        found[stage.name] = stage
    _raise(problems)
    return found


def below(source: Source, path: KeyPath) -> Source:
    """The positions of what lies below a path, by paths from there."""
    under = len(path)

    def part(places: Mapping[KeyPath, Any]) -> dict[KeyPath, Any]:
        return {key[under:]: at for key, at in places.items() if key[:under] == path}

    return Source(source.name, part(source.lines), part(source.overrides))


def _override(document: Document, texts: Sequence[str]) -> None:
    """Apply `stage.key=value`: to a key of the stage, or to `set` of a train stage.

    `budget.key=value` and `monitoring.key=value` are of the pipeline.
    """
    raws = [raw for raw in document.data["stages"] if isinstance(raw, dict)]
    known = {str(raw.get("name")): raw for raw in raws}
    for text in texts:
        label = f"--set {text}"
        key, equals, value = text.partition("=")
        name, _, rest = key.strip().partition(".")
        if not equals or not rest:
            raise UserError(f"{label}: expected stage.key=value, like sft.budget.trials=3")
        if name in _SECTIONS and name not in known:
            section, value = document.data.get(name) or {}, read_value(value, label)
            document.data[name] = {**section, rest: value}
            continue
        if name not in known:
            raise UserError(f"{label}: no stage '{name}'{suggest(name, known)}")
        raw, found = known[name], read_value(value, label)
        in_sweep = rest.startswith("sweep.")  # as the path is in the file
        if raw.get("kind") == "train" and (in_sweep or rest.partition(".")[0] not in _OF_STAGE):
            raw["set"] = {**(raw.get("set") or {}), rest.removeprefix("sweep."): found}
        else:
            raw[rest] = found


_SECTIONS = ("budget", "monitoring")
_OF_STAGE = {field.alias or name for name, field in TrainStage.model_fields.items()}


def _inline(document: Document, directory: Path) -> dict[str, Source]:
    """Replace the paths of sweep files by their content; returns their positions by stage."""
    found: dict[str, Source] = {}
    for index, raw in enumerate(document.data["stages"]):
        given = raw.get("sweep") if isinstance(raw, dict) else None
        if not isinstance(given, str):
            continue
        file = directory / given
        if not file.is_file():
            text = f"no such file: {file}"
            _raise([document.source.problem(("stages", index, "sweep"), text)])
        sweep = read_file(file)
        _raise(sweep.problems)
        raw["sweep"] = {k: v for k, v in sweep.data.items() if k not in ("name", "storage")}
        raw["directory"] = str(file.absolute().parent)
        found[str(raw.get("name"))] = sweep.source
    return found


def _sweeps(pipeline: LoadedPipeline, files: Mapping[str, Source]) -> dict[str, LoadedSweep]:
    found: dict[str, LoadedSweep] = {}
    problems: list[str] = []
    for index, raw in enumerate(pipeline.data["stages"]):
        stage = pipeline.stages[raw["name"]]
        if not isinstance(stage, TrainStage):
            continue
        place = files.get(stage.name, below(pipeline.source, ("stages", index, "sweep")))
        try:
            found[stage.name] = _sweep(pipeline, stage, place)
        except UserError as e:
            problems += [f"{line} (stage {stage.name})" for line in e.problems]
    if problems:
        raise UserError(*problems)
    return found


def _sweep(pipeline: LoadedPipeline, stage: TrainStage, source: Source) -> LoadedSweep:
    texts = [f"{key}={json.dumps(value)}" for key, value in stage.overrides.items()]
    made = apply_overrides(Document(dict(stage.sweep), source), texts)
    _raise(made.problems)
    tracking = {"experiment": pipeline.name, **(from_name(made.data.get("tracking")) or {})}
    shared = {key: pipeline.data[key] for key in ("monitoring",) if key in pipeline.data}
    data = {**shared, **made.data, "name": stage.name, "tracking": tracking}
    data.pop("storage", None)
    directory = Path(stage.directory or pipeline.directory)
    return check_sweep(data, made.source, folder=directory)
