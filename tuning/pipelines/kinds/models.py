"""The stages `average`, `confirm`, `export` and `evaluate`, which work on the models of a sweep."""

from __future__ import annotations

import json
import shutil
from typing import Any

from results.analysis.confirmation import write
from results.analysis.selection import rank_candidates, select_winner
from results.records.spec_file import read_spec
from results.storage.atomic import write_atomic
from search_spaces.pipeline.stages import AverageStage, ConfirmStage, EvaluateStage, ExportStage
from tuning.evaluation.average_models import average_models
from tuning.evaluation.confirm import Confirmer
from tuning.evaluation.export_model import check_formats, export_selected, register_selected
from tuning.evaluation.retrain import Retrainer
from tuning.evaluation.soup_request import ModelChoice, SoupRequest, method_of
from tuning.evaluation.test_split import make_test_scorer
from tuning.pipelines.base import CONFIRMS, Surroundings
from tuning.pipelines.winners import best_configurations, model_of

_MEMORY = "64MB"
"""What an average holds in memory at once."""


def average(stage: AverageStage, around: Surroundings) -> dict[str, Any]:
    """Average the best models of a sweep; returns the soup's name and its score."""
    paths = around.paths.sweep(stage.of)
    spec = read_spec(paths)
    options = [f"{name}={value}" for name, value in stage.options.items()]
    request = SoupRequest(
        method_of(stage.method, options, None), None, None, None, _MEMORY, None, False
    )
    shutil.rmtree(paths.soup(stage.name), ignore_errors=True)  # of an earlier key
    choice = ModelChoice(stage.top)
    soup, folder = average_models(paths, spec, choice, request, stage.name)
    around.say(f"soup {folder.name}: {', '.join(soup.members)}")
    return {"soup": folder.name, spec.metric: soup.scores[soup.method].mean}


def confirm(stage: ConfirmStage, around: Surroundings) -> dict[str, Any]:
    """Train the best trials of a sweep again; returns the winner of that."""
    paths = around.paths.sweep(stage.of)
    spec = read_spec(paths)
    paths.confirmation.unlink(missing_ok=True)  # of an earlier key
    ranked = rank_candidates(paths, spec, spec.select)
    best = best_configurations(ranked, stage.top)
    retrainer = Retrainer(paths, spec, around.address)
    made = Confirmer(paths, spec, spec.select, retrainer, around.say).retrain(
        [line for line in ranked if line.record.id in best], stage.seeds
    )
    write(paths, made)
    line = select_winner(paths, spec).line
    return {
        CONFIRMS: stage.of,
        "winner": line.record.id,
        spec.metric: made.winner.series[spec.metric].mean,
    }


def export(stage: ExportStage, around: Surroundings) -> dict[str, Any]:
    """Write a model in each format, or register it; returns the folders and the version."""
    picked, made = model_of(stage, around), {}
    for name in check_formats(",".join(stage.to), stage.quant):
        if name == "mlflow":
            version = register_selected(picked, around.paths.name, stage.verify)
            around.say(f"registered {picked.name} as {version.name} version {version.version}")
            made[name] = f"models:/{version.name}/{version.version}"
            continue
        target, checks = export_selected(picked, name, stage.verify, force=True)
        for check in checks:
            around.say(f"verified   {check.summary}")
        around.say(f"exported {picked.name} to {target}")
        made[name] = str(target)
    return {"model": picked.name, **made}


def evaluate(stage: EvaluateStage, around: Surroundings) -> dict[str, Any]:
    """Evaluate a model on the test split; writes and returns its metrics."""
    picked = model_of(stage, around)
    score = make_test_scorer(picked.trainable, picked.config, picked.paths.storage.cache)
    scores = score(picked.source)
    folder = around.paths.stage(stage.name)
    folder.mkdir(parents=True, exist_ok=True)
    write_atomic(folder / "scores.json", json.dumps(scores, indent=1).encode())
    return {"model": picked.name, **scores}
