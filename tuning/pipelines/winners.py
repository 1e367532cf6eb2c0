"""Finds the models that a later stage begins with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from results.analysis.leaderboard import TrialSummary
from results.analysis.selection import rank_candidates, select_winner
from results.paths import SweepPaths
from results.records.pipeline import PipelinePaths, read_stages
from results.records.spec_file import read_spec
from results.records.trial import read_trial
from search_spaces.errors import UserError
from search_spaces.nested import flattened
from search_spaces.pipeline.loading import LoadedPipeline
from search_spaces.pipeline.references import (
    MetricReference,
    ModelReference,
    metric_reference,
    model_reference,
)
from search_spaces.pipeline.stages import Stage, TrainStage
from search_spaces.spec.select import SelectSpec
from tuning.evaluation.export_model import export_selected
from tuning.evaluation.load_model import SelectedModel, select_model
from tuning.pipelines.base import Surroundings
from tuning.pipelines.folder import soup_of

ORIGIN = "model_name_or_path"
"""The parameter of a trainable that names the model to begin with."""
_HF = "-hf"


@dataclass(frozen=True)
class ChosenWinner:
    """The winner of a train stage, by the metric of a later stage."""

    trial: str
    by: str

    def __str__(self) -> str:
        return f"{self.trial} by {self.by}"


def winners_by_later_stages(
    pipeline: LoadedPipeline, paths: PipelinePaths
) -> dict[str, ChosenWinner]:
    """The winners by `choose_by`, of the stages for which the later stage is complete."""
    found, records = {}, read_stages(paths).stages
    for name, stage in pipeline.stages.items():
        if isinstance(stage, TrainStage) and stage.choose_by is not None:
            judge = records.get(metric_reference(stage.choose_by).stage)
            if judge is not None and judge.done:
                found[name] = ChosenWinner(winner_of(stage, paths), stage.choose_by)
    return found


def winner_of(stage: TrainStage, pipeline: PipelinePaths) -> str:
    """The trial that won a train stage, by its own metric or by that of `choose_by`."""
    if stage.choose_by is None:
        paths = pipeline.sweep(stage.name)
        return select_winner(paths, read_spec(paths)).line.record.id
    judge = metric_reference(stage.choose_by)
    files = pipeline.sweep(judge.stage)
    trial = _best_by(judge, files)
    origin = flattened(read_trial(files.trial(trial)).config)[ORIGIN]
    return Path(origin).name.removesuffix(_HF)


def _best_by(judge: MetricReference, paths: SweepPaths) -> str:
    spec = read_spec(paths)
    modes = {o.metric: o.mode for o in spec.objectives}
    mode = judge.mode or modes[judge.metric]
    if judge.metric == spec.metric and mode == spec.mode:
        return select_winner(paths, spec).line.record.id
    changed = {"metrics": judge.metric, "modes": mode, "select": SelectSpec()}
    other = spec.model_copy(update=changed)
    return rank_candidates(paths, other, other.select)[0].record.id


def selected(model: ModelReference, around: Surroundings) -> SelectedModel:
    """The one model that a reference names: a winner or a soup.

    Raises:
        UserError: see `select_model`.
    """
    stage, paths = around.pipeline.stages[model.stage], around.paths.sweep(model.stage)
    assert isinstance(stage, TrainStage), "checked when the file is read"
    if model.role == "soup":
        soup = soup_of(stage.name, around.pipeline, around.results)
        return select_model(paths, None, soup, "export")
    if stage.choose_by is None:  # with what the card says of a winner
        return select_model(paths, None, None, "export")
    return select_model(paths, winner_of(stage, around.paths), None, "export")


def model_of(stage: Stage, around: Surroundings) -> SelectedModel:
    """The model that the key `model` of a stage names."""
    found = model_reference(getattr(stage, "model", None))
    assert found is not None, "checked when the file is read"
    return selected(found, around)


def origins(model: ModelReference, around: Surroundings) -> dict[str, dict[str, Any]]:
    """Folders of models in the form of `transformers`, best first, and the parameters of each.

    Raises:
        UserError: the earlier stage has fewer models, or one cannot be exported.
    """
    if model.role != "top":
        picked = selected(model, around)
        return {_folder(picked): _parameters(picked)}
    paths = around.paths.sweep(model.stage)
    spec = read_spec(paths)
    trials = best_configurations(rank_candidates(paths, spec, spec.select), model.count)
    if len(trials) < model.count:
        raise UserError(
            f"{model.stage}: top({model.count}) needs as many configurations with a value, "
            f"there are {len(trials)}; see: tune show {around.paths.name}/{model.stage}"
        )
    picks = [select_model(paths, trial, None, "export") for trial in trials]
    return {_folder(picked): _parameters(picked) for picked in picks}


def best_configurations(ranked: Sequence[TrialSummary], count: int) -> list[str]:
    """The first trial of each of the best configurations, which may have several seeds."""
    first: dict[int, str] = {}
    for line in ranked:
        first.setdefault(line.record.number, line.record.id)
    return list(first.values())[:count]


def _folder(picked: SelectedModel) -> str:
    """The model's folder for `transformers`, written again if the model is newer."""
    target = picked.paths.exports / f"{picked.name}{_HF}"
    if target.is_dir() and target.stat().st_mtime >= picked.source.stat().st_mtime:
        return str(target)
    return str(export_selected(picked, "hf", verify=False, force=True)[0])


def _parameters(picked: SelectedModel) -> dict[str, Any]:
    first = picked.card.parents[0]
    return flattened(read_trial(picked.paths.trial(first)).config)
