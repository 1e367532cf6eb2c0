"""Adds to the sweep of a train stage what it takes from other stages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from search_spaces.errors import UserError
from search_spaces.loading.sweep_file import LoadedSweep, check_sweep
from search_spaces.nested import merge, nested
from search_spaces.pipeline.loading import LoadedPipeline
from search_spaces.pipeline.references import model_reference, with_folders
from search_spaces.pipeline.stages import TrainStage
from tuning.pipelines.winners import ORIGIN

Origins = Mapping[str, Mapping[str, Any]]
"""Folders or names of models, and the parameters with which each was trained."""


def with_inputs(
    pipeline: LoadedPipeline,
    stage: TrainStage,
    folders: Mapping[str, str],
    origins: Origins,
    tied: Mapping[str, Any],
) -> LoadedSweep:
    """The sweep of a stage as it runs.

    Args:
        pipeline, stage: the file, and the train stage.
        folders: of the stages, for `{stage}` in `fixed`.
        origins: the models to begin with; none if the stage has no `init`.
        tied: values of `tie` that do not depend on the origin.

    Raises:
        UserError: the sweep is not valid with them.
    """
    loaded = pipeline.sweeps[stage.name]
    data = loaded.spec.model_dump()
    del data["trainable" if loaded.spec.command else "command"]
    del data["storage"]
    data["fixed"] = merge(with_folders(data["fixed"], folders), nested(tied))
    reference = model_reference(stage.init)
    if len(origins) == 1:
        data["fixed"] = merge(data["fixed"], {ORIGIN: next(iter(origins)), **_own(stage, origins)})
    elif origins:
        assert reference is not None, "several origins are of a stage"
        each = {
            name: nested(_from_origin(stage, reference.stage, parameters))
            for name, parameters in origins.items()
        }
        tree: Any = each if any(each.values()) else list(each)
        data["space"] = {ORIGIN: {"choice": tree}, **data["space"]}
    return check_sweep(data, loaded.source, folder=loaded.path.parent)


def _own(stage: TrainStage, origins: Origins) -> dict[str, Any]:
    reference = model_reference(stage.init)
    (parameters,) = origins.values()
    return nested(_from_origin(stage, reference.stage, parameters)) if reference else {}


def _from_origin(stage: TrainStage, owner: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The values of `tie` that come with the model that a trial begins with."""
    found = {}
    for name, value in stage.tie.items():
        other, _, parameter = value.partition(".")
        if other != owner:
            continue
        if parameter not in parameters:
            raise UserError(f"tie.{name}: no trial of {owner} has a parameter '{parameter}'")
        found[name] = parameters[parameter]
    return found
