"""The stages `average`, `confirm`, `export` and `evaluate`, which work on the models of a sweep."""

from __future__ import annotations

import json
import shutil
from typing import Any

from results.analysis.confirmation import write
from results.analysis.selection import select_winner
from results.models.ref import ModelRef
from results.records.record_log import remove_logged
from results.records.spec_file import read_spec
from results.storage.atomic import write_atomic
from search_spaces.pipeline.stages import AverageStage, ConfirmStage, EvaluateStage, ExportStage
from tuning.evaluation.average import AverageOptions, ModelChoice, average_models, method_of
from tuning.evaluation.benchmark_tasks import evaluate_selected, task_options
from tuning.evaluation.confirm import Confirmer
from tuning.evaluation.export_model import (
    check_formats,
    export_ref,
    export_selected,
    register_selected,
)
from tuning.evaluation.load_model import soup_ref
from tuning.evaluation.scoring import make_test_scorer
from tuning.pipelines.base import CONFIRMS, StageContext, StageOutput
from tuning.pipelines.models import models_of


def average(stage: AverageStage, context: StageContext) -> StageOutput:
    """Average the best models of a sweep; returns the soup's name and its score."""
    paths = context.paths.sweep(stage.of)
    spec = read_spec(paths)
    method = method_of(stage.method, [f"{k}={v}" for k, v in stage.options.items()], None)
    shutil.rmtree(paths.soup(stage.name), ignore_errors=True)  # of an earlier key
    choice = ModelChoice(stage.top)
    settings, say = AverageOptions(method), context.notify
    soup, folder = average_models(paths, spec, choice, settings, stage.name, say)
    context.notify(f"soup {folder.name}: {', '.join(soup.members)}")
    score = {spec.metric: soup.scores[soup.method].mean}
    return StageOutput(
        {"soup": folder.name, **score}, (soup_ref(paths, folder, soup, spec.metric),)
    )


def confirm(stage: ConfirmStage, context: StageContext) -> StageOutput:
    """Train the best trials of a sweep again; returns the winner of that."""
    paths = context.paths.sweep(stage.of)
    spec = read_spec(paths)
    remove_logged(paths, paths.confirmation)  # of an earlier key
    confirmer = Confirmer(paths, spec, spec.select, context.address, context.notify)
    made = confirmer.retrain(confirmer.best(stage.top), stage.seeds)
    write(paths, made)
    line = select_winner(paths, spec).line
    score = {spec.metric: made.winner.series[spec.metric].mean}
    return StageOutput({CONFIRMS: stage.of, "winner": line.record.id, **score})


def export(stage: ExportStage, context: StageContext) -> StageOutput:
    """Write a model in each format, or register it; returns the folders and the version."""
    (picked,) = models_of(stage.model, context)
    made: dict[str, Any] = {"model": picked.name}
    copies: list[ModelRef] = []
    for name in check_formats(",".join(stage.to), stage.quant):
        if name == "mlflow":
            version = register_selected(picked, context.paths.name, stage.verify)
            context.notify(f"registered {picked.name} as {version.name} version {version.version}")
            made[name] = f"models:/{version.name}/{version.version}"
            continue
        target, checks = export_selected(picked, name, stage.verify, force=True)
        for check in checks:
            context.notify(f"verified   {check.summary}")
        context.notify(f"exported {picked.name} to {target}")
        made[name] = str(target)
        copies.append(export_ref(picked, name))
    return StageOutput(made, tuple(copies))


def evaluate(stage: EvaluateStage, context: StageContext) -> StageOutput:
    """Evaluate a model on the test split and on tasks; writes and returns its metrics."""
    (picked,) = models_of(stage.model, context)
    score = make_test_scorer(picked.trainable, picked.config, picked.paths.storage.cache)
    scores = dict(score(picked.source))
    if stage.tasks:
        made, file = evaluate_selected(picked, task_options(stage, context.pipeline.directory))
        context.notify(f"scores     {file}")
        scores |= made.metrics
    folder = context.paths.stage(stage.name)
    folder.mkdir(parents=True, exist_ok=True)
    write_atomic(folder / "scores.json", json.dumps(scores, indent=1).encode())
    return StageOutput({"model": picked.name, **scores})
