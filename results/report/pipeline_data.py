"""The data of a pipeline's report, read once from its folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from results.averaging.soup.scoring import read_soup
from results.models.origins import origins_in
from results.models.stages import StageRecord, read_stages, stage_state
from results.models.winners import winners_by_later_stages
from results.paths import SweepPaths
from results.records.pipeline import PipelinePaths
from results.records.spec_file import read_spec
from results.records.trial import read_trials
from search_spaces.pipeline.graph import dependencies, named_stages
from search_spaces.pipeline.loading import LoadedPipeline, load_pipeline
from search_spaces.pipeline.references import model_reference
from search_spaces.pipeline.stages import AverageStage, ConfirmStage, Stage


@dataclass(frozen=True)
class Flow:
    """What one stage takes from another.

    Attributes:
        source: name of the other stage.
        words: what the file says: `top(2)`, `text/*.jsonl`; empty if it only comes after it.
        models: trials and soups of the other stage.
        files: globs in the folder of the other stage.
    """

    source: str
    words: str
    models: tuple[str, ...] = ()
    files: tuple[str, ...] = ()

    @property
    def what(self) -> str:
        """What flowed, as `t0001, t0003 (top(2))`."""
        if not self.models:
            return self.words
        return ", ".join(self.models) + (f" ({self.words})" if self.words else "")


@dataclass(frozen=True)
class StageLine:
    """A stage as the report needs it.

    Attributes:
        runs: its trainable, source or formats, in words.
        state: see `stage_state`.
        key: see `StageRecord`; empty if it has not begun.
        settings: the keys of the stage.
        began: Unix seconds; None if it has not begun.
        flows: what it takes from other stages, in file order.
        seconds: wall-clock; None if it has not begun.
        cpu_hours, gpu_hours, cost: of its trials; 0 for a stage without any, and without prices.
        trials: number of its trials; None if it is no sweep.
        metrics: what it was measured by, of the model that it put out.
        model: trial or soup that it put out; empty if none.
        put_out: model, files or counts, in words.
        folder: of the stage.
        sweep: the same as a sweep; None if it is none, or has not begun.
    """

    name: str
    kind: str
    runs: str
    state: str
    key: str
    settings: Mapping[str, Any]
    began: float | None
    flows: tuple[Flow, ...]
    seconds: float | None
    cpu_hours: float
    gpu_hours: float
    cost: float
    trials: int | None
    metrics: Mapping[str, float]
    model: str
    put_out: str
    folder: Path
    sweep: SweepPaths | None


@dataclass(frozen=True)
class PipelineData:
    """A pipeline as the report needs it; the stages in the order in which they run."""

    name: str
    description: str
    stages: tuple[StageLine, ...]


def read_pipeline_data(paths: PipelinePaths, *, driven: bool) -> PipelineData:
    """Read the folder of a pipeline.

    Args:
        driven: whether a driver runs it now.

    Raises:
        UserError: a record is damaged.
    """
    pipeline, records = load_pipeline(paths.spec), read_stages(paths).stages
    winners = winners_by_later_stages(pipeline, paths)
    lines = (
        _line(paths, pipeline, pipeline.stages[name], records.get(name), driven, winners.get(name))
        for name in pipeline.order
    )
    return PipelineData(paths.name, pipeline.head.description or "", tuple(lines))


def _line(
    paths: PipelinePaths,
    pipeline: LoadedPipeline,
    stage: Stage,
    record: StageRecord | None,
    driven: bool,
    winner: str | None,
) -> StageLine:
    sweep = paths.sweep(stage.name) if paths.sweep(stage.name).is_sweep else None
    result = dict(record.result) if record else {}
    cpu, gpu, cost = (float(result.pop(k, 0.0)) for k in ("cpu_hours", "gpu_hours", "cost"))
    measured = {k: v for k, v in result.items() if isinstance(v, float)}
    inside = f"{paths.stages.root}/"
    words = [f"{k} {str(v).removeprefix(inside)}" for k, v in result.items() if k not in measured]
    if winner:
        words.append(f"{winner} by {getattr(stage, 'choose_by', '')}")
    put_out = next((result[key] for key in ("winner", "soup") if key in result), "")
    runs: Any = next((v for k in ("source", "method", "to") if (v := getattr(stage, k, None))), "")
    if stage.name in pipeline.sweeps:
        runs = pipeline.sweeps[stage.name].spec.trainable
    return StageLine(
        name=stage.name,
        kind=stage.kind,
        runs=", ".join(runs) if isinstance(runs, list) else runs,
        state=stage_state(record, driven=driven),
        key=record.key if record else "",
        settings=stage.model_dump(mode="json", exclude={"name", "kind"}, exclude_none=True),
        began=record.began if record else None,
        flows=tuple(_flows(paths, pipeline, stage, sweep, result)),
        seconds=record.seconds if record else None,
        cpu_hours=cpu,
        gpu_hours=gpu,
        cost=cost,
        trials=len(read_trials(sweep)) if sweep else None,
        metrics=measured,
        model=winner or str(put_out),
        put_out=", ".join(words),
        folder=paths.stage(stage.name),
        sweep=sweep,
    )


def _flows(
    paths: PipelinePaths,
    pipeline: LoadedPipeline,
    stage: Stage,
    sweep: SweepPaths | None,
    result: Mapping[str, Any],
) -> Iterator[Flow]:
    """What the stage takes from each stage that it needs: by the file, then the models."""
    words: dict[str, dict[str, None]] = {}
    for path, other in named_stages(stage):
        words.setdefault(other, {})[_words(stage, path)] = None
    taken = _taken(paths, stage, sweep, result)
    for other in dependencies(stage.name, pipeline.stages):
        said = ", ".join(word for word in words.get(other, {}) if word)
        yield Flow(other, said, *taken.get(other, ((), ())))


def _words(stage: Stage, path: tuple[str | int, ...]) -> str:
    """What the value at a path takes from the stage that it names."""
    value: Any = stage.model_dump(by_alias=True)
    for key in path:
        value = value[key]
    match path:
        case ("from", _):
            return ""
        case ("of",):
            top = stage.top if isinstance(stage, AverageStage | ConfirmStage) else 1
            return f"best {top}"
        case ("tie", parameter):
            return f"tied {parameter}"
        case (key,):
            found = model_reference(str(value))
            return str(value).partition(".")[2] if found else f"{key}"
    return str(value).partition("/")[2]


def _taken(
    paths: PipelinePaths, stage: Stage, sweep: SweepPaths | None, result: Mapping[str, Any]
) -> dict[str, tuple[tuple[str, ...], tuple[str, ...]]]:
    """The models and the globs of files that a stage took, by the stage that made them."""
    if sweep:
        return _taken_by_sweep(sweep)
    if isinstance(stage, AverageStage) and "soup" in result:
        soup = read_soup(paths.sweep(stage.of).soup(str(result["soup"])))
        return {stage.of: (soup.members, ())}
    if (named := model_reference(getattr(stage, "model", None))) and "model" in result:
        return {named.stage: ((str(result["model"]),), ())}
    return {}


def _taken_by_sweep(sweep: SweepPaths) -> dict[str, tuple[tuple[str, ...], tuple[str, ...]]]:
    spec, found = read_spec(sweep), dict[str, tuple[dict[str, None], dict[str, None]]]()
    choices = [list(d.categories) for d in spec.domains().values() if d.is_categorical]
    for _, path, source in origins_in([spec.fixed, choices]):
        models, files = found.setdefault(source.folder.name, ({}, {}))
        if source.model:
            models[source.model] = None
        else:
            files[Path(path).relative_to(source.folder).as_posix()] = None
    return {name: (tuple(models), tuple(files)) for name, (models, files) in found.items()}
