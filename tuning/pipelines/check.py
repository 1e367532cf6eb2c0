"""Checks a pipeline against its training code, before anything starts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from results.models.winners import ORIGIN
from search_spaces.errors import UserError, first_few, suggest
from search_spaces.loading.sweep_file import LoadedSweep
from search_spaces.nested import KeyPath, flattened
from search_spaces.pipeline.graph import dependencies
from search_spaces.pipeline.loading import LoadedPipeline
from search_spaces.pipeline.references import folder_references, metric_reference, model_reference
from search_spaces.pipeline.stages import (
    AverageStage,
    DataStage,
    EvaluateStage,
    ExportStage,
    TrainStage,
)
from trainables.data.stage.files import data_problem, outputs
from trainables.registry import resolve
from tuning.controller.preflight.checks import preflight
from tuning.controller.preflight.comparability import (
    comparability_notes,
    metric_key,
    other_metric,
)
from tuning.evaluation.average import method_of
from tuning.evaluation.benchmark_tasks import find_tasks, task_options
from tuning.evaluation.export_model import check_formats
from tuning.pipelines.models import with_inputs

Samples = dict[str, tuple[LoadedSweep, list[dict[str, Any]]]]
"""The sweep of each train stage, as it is going to run, and configurations of it."""
_Problems = Iterator[tuple[KeyPath, str]]


def check_pipeline(pipeline: LoadedPipeline) -> Samples:
    """Sample configurations of each train stage, and check each against its trainable.

    Raises:
        UserError: mistakes of all stages, one line each.
    """
    lines: list[str] = []
    samples: Samples = {}
    for name in pipeline.order:
        stage = pipeline.stages[name]
        try:
            if isinstance(stage, TrainStage):
                found = list(_train_problems(pipeline, stage, samples))
                if not found:
                    samples[name] = _sampled(pipeline, stage)
                    found += _length_problems(pipeline, stage, samples)
            else:
                found = list(_other_problems(pipeline, name))
            lines += [pipeline.problem(name, path, text).message for path, text in found]
        except UserError as e:
            lines += [f"{line} (stage {name})" for line in e.problems]
    trials = [one.spec.budget.trials or 0 for one in pipeline.sweeps.values()]
    whole = pipeline.head.budget.trials
    if whole is not None and sum(trials) > whole:
        text = f"{whole} is less than the {sum(trials)} trials of the stages"
        lines.append(pipeline.source.problem(("budget", "trials"), text).message)
    if pipeline.head.budget.cost is not None:
        lines += [pipeline.source.problem(("budget", "cost"), x).message for x in _prices(pipeline)]
    if lines:
        raise UserError(*lines)
    return samples


def _prices(pipeline: LoadedPipeline) -> Iterator[str]:
    """Why the costs of the stages cannot be added."""
    prices = {name: one.spec.prices for name, one in pipeline.sweeps.items()}
    currencies = sorted({price.currency for price in prices.values() if price})
    if without := [name for name, price in prices.items() if price is None]:
        yield f"needs prices of stage {first_few(without)}, like prices: {{gpu_hour: 2.5}}"
    elif len(currencies) > 1:
        yield f"the stages have prices in {' and '.join(currencies)}"


def _sampled(
    pipeline: LoadedPipeline, stage: TrainStage
) -> tuple[LoadedSweep, list[dict[str, Any]]]:
    """The sweep with placeholders for what earlier stages put out, and configurations of it."""
    model = model_reference(stage.init)
    names = [stage.init] if stage.init else []
    if model is not None and model.role == "top":
        names = [f"{model.stage}.{place}" for place in range(1, model.count + 1)]
    ties = {name: _example(pipeline, value) for name, value in stage.tie.items()}
    sources = {value.partition(".")[2]: ties[name] for name, value in stage.tie.items()}
    origins = {name: sources for name in names}
    owner = model.stage if model else ""
    tied = {n: v for n, v in ties.items() if stage.tie[n].partition(".")[0] != owner}
    loaded = with_inputs(pipeline, stage, {}, origins, tied)
    alone = not dependencies(stage.name, pipeline.stages)
    return loaded, preflight(loaded, files=alone)


def _example(pipeline: LoadedPipeline, value: str) -> Any:
    """A value that a parameter of an earlier stage can have."""
    owner, _, parameter = value.partition(".")
    spec = pipeline.sweeps[owner].spec
    if parameter in (domains := spec.domains()):
        domain = domains[parameter]
        return domain.categories[0] if domain.is_categorical else domain.lower
    return flattened(spec.fixed)[parameter]


def _train_problems(pipeline: LoadedPipeline, stage: TrainStage, samples: Samples) -> _Problems:
    spec = pipeline.sweeps[stage.name].spec
    known = {*spec.domains(), *flattened(spec.fixed)}
    if stage.init is not None:
        if ORIGIN not in resolve(spec.trainable).Config.model_fields:
            yield ("init",), f"{spec.trainable} cannot begin with a model: it has no {ORIGIN}"
        elif ORIGIN in known:
            yield ("init",), f"init and {ORIGIN} exclude each other; remove one"
    for name, value in stage.tie.items():
        owner, _, parameter = value.partition(".")
        source = pipeline.sweeps[owner].spec
        has = {*source.domains(), *flattened(source.fixed)}
        if parameter not in has:
            yield ("tie", name), f"{owner} has no parameter '{parameter}'{suggest(parameter, has)}"
        if name in known:
            yield ("tie", name), f"{name} is tied, and in the space or fixed too; remove one"
    yield from _choice_problems(pipeline, stage)
    yield from _tokenizer_problems(pipeline, stage)
    yield from _column_problems(pipeline, stage)


def _choice_problems(pipeline: LoadedPipeline, stage: TrainStage) -> _Problems:
    """`choose_by` is a metric that the later stage reports, with a known direction."""
    if stage.choose_by is None:
        return
    judge = metric_reference(stage.choose_by)
    spec = pipeline.sweeps[judge.stage].spec
    reported = resolve(spec.trainable).reported_metrics(spec.fixed)
    if reported and judge.metric not in reported:
        hint = suggest(judge.metric, reported)
        yield ("choose_by",), f"{judge.stage} does not report '{judge.metric}'{hint}"
    elif judge.mode is None and judge.metric not in [o.metric for o in spec.objectives]:
        text = f"{judge.stage}.{judge.metric}"
        yield ("choose_by",), f"is less or more better? write 'min {text}' or 'max {text}'"


def pipeline_notes(pipeline: LoadedPipeline) -> list[str]:
    """A line for each train stage whose metric does not compare its trials."""
    sweeps = {name: pipeline.sweeps[name] for name in pipeline.order if name in pipeline.sweeps}
    return [
        f"stage {name}: {note}"
        for name, sweep in sweeps.items()
        for note in comparability_notes(sweep.spec)
    ]


def _tokenizer_problems(pipeline: LoadedPipeline, stage: TrainStage) -> _Problems:
    """Models whose tokenizers differ cannot be compared by a loss per token."""
    model, spec = model_reference(stage.init), pipeline.sweeps[stage.name].spec
    if model is None or model.role != "top":
        return
    searched = tuple(pipeline.sweeps[model.stage].spec.domains())
    for metric in (o.metric for o in spec.objectives):
        if key := metric_key(spec, metric, searched, ("tokenizer", "vocab_size")):
            yield (
                ("init",),
                f"the models of {model.stage} have different tokenizers (it searches {key}), so "
                f"{metric} per token does not compare them{other_metric(spec, searched)}, or "
                f"{model.stage}.winner",
            )


def _column_problems(pipeline: LoadedPipeline, stage: TrainStage) -> _Problems:
    """Files of a data stage exist, and have the columns that the trainable reads."""
    fixed = pipeline.sweeps[stage.name].spec.fixed
    for path, name in folder_references(fixed):
        source, value = pipeline.stages[name], _at(fixed, path)
        if not isinstance(source, DataStage):
            continue
        has = outputs(source)
        folder = value.partition("/")[2].partition("/")[0]
        if folder not in has:
            yield (
                ("sweep", "fixed", *path),
                f"{name} puts out no '{folder}'{suggest(folder, has)}",
            )
            continue
        data = _at(fixed, path[:1]) if path[0] == "data" else {}
        if path[:2] == ("data", "paths") and data.get("splits") != "file_names":
            text = f"{name} has split its texts; write splits: file_names, or they are split again"
            yield ("sweep", "fixed", "data"), text
        keys = ("text_field", "question", "answer", "messages")
        for key in (key for key in keys if data.get(key)):
            if data[key] not in has[folder]:
                hint = suggest(data[key], has[folder])
                place = ("sweep", "fixed", "data", key)
                yield place, f"{name}/{folder} has no column '{data[key]}'{hint}"


def _at(tree: Any, path: KeyPath) -> Any:
    for key in path:
        tree = tree[key]
    return tree


def _length_problems(pipeline: LoadedPipeline, stage: TrainStage, samples: Samples) -> _Problems:
    """A model has as many positions as the sequences on which it was trained have tokens."""
    model = model_reference(stage.init)
    if model is None or model.stage not in samples:
        return
    lengths = []
    for loaded, sampled in (samples[stage.name], samples[model.stage]):
        config = resolve(loaded.spec.trainable).Config
        made = (config.model_validate(loaded.spec.nest(params)) for params in sampled)
        lengths.append({one.sequence_length for one in made if hasattr(one, "sequence_length")})
    longest, positions = max(lengths[0], default=0), min(lengths[1], default=0)
    if positions and longest > positions:
        yield (
            ("init",),
            f"sequence_length {longest} is more than the {positions} positions of the models of "
            f"{model.stage}; raise its sequence_length, or lower this one",
        )


def _other_problems(pipeline: LoadedPipeline, name: str) -> _Problems:
    stage = pipeline.stages[name]
    try:
        if isinstance(stage, ExportStage):
            check_formats(",".join(stage.to), stage.quant)
        elif isinstance(stage, AverageStage):
            method_of(stage.method, [f"{k}={v}" for k, v in stage.options.items()], None)
        elif isinstance(stage, DataStage):
            yield from data_problem(stage, pipeline.directory)
        elif isinstance(stage, EvaluateStage) and stage.tasks:
            find_tasks(task_options(stage, pipeline.directory))
    except UserError as e:
        yield (), e.problems[0].removeprefix("--")
