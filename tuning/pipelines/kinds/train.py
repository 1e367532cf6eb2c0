"""The stage `train`: an ordinary sweep, whose folder lies in that of the pipeline."""

from __future__ import annotations

import json
import shutil
from functools import partial
from typing import Any

from results.analysis.cost import total_cost
from results.analysis.selection import select_winner
from results.records.spec_file import read_spec
from results.records.trial import read_trial, read_trials
from search_spaces.loading.sweep_file import LoadedSweep
from search_spaces.nested import flattened
from search_spaces.pipeline.references import model_reference
from search_spaces.pipeline.stages import TrainStage
from tuning import api
from tuning.pipelines.base import Session, StageStopped, Surroundings
from tuning.pipelines.inputs import with_inputs
from tuning.pipelines.running.spending import within
from tuning.pipelines.winners import origins, winner_of


def run(stage: TrainStage, around: Surroundings) -> dict[str, Any]:
    """Run the sweep, or resume it; returns its winner and cost."""
    paths, address = around.paths.sweep(stage.name), around.address
    session: Session
    if paths.is_sweep:
        session = partial(
            api.resume, str(paths.root), overrides=_changes(stage, around), address=address
        )
    else:
        shutil.rmtree(paths.root, ignore_errors=True)  # a kill while the folder was made
        storage = str(paths.storage.root)
        sweep = _sweep(stage, around)
        session = partial(api.run, sweep, name=stage.name, storage=storage, address=address)
    ended = around.drive(session)
    if ended.interrupted:
        raise StageStopped(f"stage {stage.name} was interrupted", 1 if ended.gave_up else 130)
    if not ended.table.has_result:
        shown = f"tune show {around.paths.name}/{stage.name}"
        raise StageStopped(f"no trial of stage {stage.name} has a value; see: {shown}", 1)
    spec = read_spec(paths)
    line, cost = select_winner(paths, spec).line, total_cost(read_trials(paths), spec.prices)
    values = {"winner": line.record.id, spec.metric: line.value}
    priced = {"cost": cost.cost} if spec.prices is not None else {}
    return {**values, "cpu_hours": cost.cpu_hours, "gpu_hours": cost.gpu_hours, **priced}


def _changes(stage: TrainStage, around: Surroundings) -> list[str]:
    """What has changed in the file and does not change the models of a sweep that has begun."""
    wanted = around.pipeline.sweeps[stage.name].spec.monitoring
    if read_spec(around.paths.sweep(stage.name)).monitoring == wanted:
        return []
    return [f"monitoring={json.dumps(wanted.model_dump(mode='json', exclude_defaults=True))}"]


def _sweep(stage: TrainStage, around: Surroundings) -> LoadedSweep:
    """The sweep with the models, tied values and folders of other stages, and what is left."""
    model = model_reference(stage.init)
    given: dict[str, dict[str, Any]] = {stage.init: {}} if stage.init else {}
    begin = origins(model, around) if model else given
    tied = {}
    for name, value in stage.tie.items():
        owner, _, parameter = value.partition(".")
        if model is None or owner != model.stage:
            source = around.pipeline.stages[owner]
            assert isinstance(source, TrainStage), "checked when the file is read"
            files = around.paths.sweep(owner).trial(winner_of(source, around.paths))
            tied[name] = flattened(read_trial(files).config)[parameter]
    made = with_inputs(around.pipeline, stage, around.folders, begin, tied)
    return within(made, around)
