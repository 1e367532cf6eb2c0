"""What a train stage takes from others: models to begin with, tied values, and folders."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from typing import Any

from results.analysis.leaderboard import one_per_configuration
from results.analysis.selection import rank_candidates
from results.models.ref import ModelRef
from results.models.stages import StageRecords
from results.models.winners import ORIGIN, winner_of
from results.records.spec_file import read_spec
from results.sweep_folder.folder import sweep_argument
from search_spaces.errors import UserError
from search_spaces.loading.sweep_file import LoadedSweep, check_sweep
from search_spaces.nested import merge, nested
from search_spaces.pipeline.loading import LoadedPipeline
from search_spaces.pipeline.references import model_reference, with_folders
from search_spaces.pipeline.stages import Stage, TrainStage
from tuning.evaluation.export_model import export_ref
from tuning.evaluation.load_model import SelectedModel, select_model
from tuning.pipelines.base import StageContext
from tuning.pipelines.folder import soup_of


def models_of(reference: str, context: StageContext) -> list[SelectedModel]:
    """The models that a text like `pretrain.winner`, `pretrain.soup` or `pretrain.top(3)` names.

    Raises:
        UserError: the stage has fewer models, or see `select_model`.
    """
    model = model_reference(reference)
    assert model is not None, "checked when the file is read"
    stage, paths = context.pipeline.stages[model.stage], context.paths.sweep(model.stage)
    assert isinstance(stage, TrainStage), "checked when the file is read"
    if model.role == "soup":
        soup = soup_of(stage.name, context.pipeline, context.records)
        return [select_model(paths, None, soup, "export")]
    if model.role == "winner":  # without its name, the card says why it won
        name = stage.choose_by and winner_of(stage, context.paths, context.records)
        return [select_model(paths, name, None, "export")]
    spec = read_spec(paths)
    trials = one_per_configuration(rank_candidates(paths, spec, spec.select))[: model.count]
    if len(trials) < model.count:
        raise UserError(
            f"{model.stage}: top({model.count}) needs as many configurations with a value, "
            f"there are {len(trials)}; see: tune show {sweep_argument(paths)}"
        )
    return [select_model(paths, line.record.id, None, "export") for line in trials]


def init_models(stage: Stage, context: StageContext, records: StageRecords) -> tuple[ModelRef, ...]:
    """The models with which a stage begins, as folders of `transformers` that `export` writes.

    A folder that is there and of another model is removed: of an average that was made again.
    """
    init: str | None = getattr(stage, "init", None)
    if init is None or model_reference(init) is None:
        return ()
    found = tuple(export_ref(model, "hf") for model in models_of(init, context))
    every = sorted((*records.stages.values(), *records.earlier.values()), key=lambda r: r.began)
    newest = {model.path: model.digest for record in every for model in record.inputs}
    for model in found:
        if newest.get(model.path) != model.digest:
            shutil.rmtree(model.path, ignore_errors=True)
    return found


def with_inputs(
    pipeline: LoadedPipeline,
    stage: TrainStage,
    folders: Mapping[str, str],
    origins: Mapping[str, Mapping[str, Any]],
    tied: Mapping[str, Any],
) -> LoadedSweep:
    """The sweep of a stage as it runs.

    Args:
        pipeline, stage: the file, and the train stage.
        folders: of the stages, for `{stage}` in `fixed`.
        origins: folder or name of each model to begin with → its parameters; none without `init`.
        tied: values of `tie` that do not depend on the origin.

    Raises:
        UserError: the sweep is not valid with them.
    """
    loaded = pipeline.sweeps[stage.name]
    data = loaded.spec.model_dump()
    del data["trainable" if loaded.spec.command else "command"]
    del data["storage"]
    data["fixed"] = merge(with_folders(data["fixed"], folders), nested(tied))
    each = {name: nested(_tied_to(stage, parameters)) for name, parameters in origins.items()}
    if len(each) == 1:
        ((name, own),) = each.items()
        data["fixed"] = merge(data["fixed"], {ORIGIN: name, **own})
    elif each:
        tree: Any = each if any(each.values()) else list(each)
        data["space"] = {ORIGIN: {"choice": tree}, **data["space"]}
    return check_sweep(data, loaded.source, folder=loaded.path.parent)


def _tied_to(stage: TrainStage, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The values of `tie` that come with the model that a trial begins with."""
    model, found = model_reference(stage.init), {}
    for name, value in stage.tie.items():
        owner, _, parameter = value.partition(".")
        if model is None or owner != model.stage:
            continue
        if parameter not in parameters:
            raise UserError(f"tie.{name}: no trial of {owner} has a parameter '{parameter}'")
        found[name] = parameters[parameter]
    return found
