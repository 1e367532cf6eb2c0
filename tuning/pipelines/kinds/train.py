"""The stage `train`: an ordinary sweep, whose folder lies in that of the pipeline."""

from __future__ import annotations

import json
import shutil
from functools import partial

from results.analysis.cost import total_cost
from results.analysis.selection import select_winner
from results.checkpoints.commit import newest_intact
from results.models.ref import checkpoint_ref
from results.models.winners import winner_of
from results.records.spec_file import read_spec
from results.records.trial import read_trial, read_trials
from results.sweep_folder.folder import sweep_argument
from search_spaces.loading.sweep_file import LoadedSweep
from search_spaces.nested import flattened
from search_spaces.pipeline.references import model_reference
from search_spaces.pipeline.stages import TrainStage
from tuning import api
from tuning.evaluation.export_model import export_ref, export_selected
from tuning.pipelines.base import Session, StageContext, StageOutput, StageStopped
from tuning.pipelines.capacity import limit_budget
from tuning.pipelines.models import models_of, with_inputs


def run(stage: TrainStage, context: StageContext) -> StageOutput:
    """Run the sweep, or resume it; returns its winner and cost."""
    paths, address = context.paths.sweep(stage.name), context.address
    session: Session
    if paths.is_sweep:
        # what has changed in the file and does not change the models of a sweep that has begun
        wanted, changes = context.pipeline.sweeps[stage.name].spec.monitoring, list[str]()
        if read_spec(paths).monitoring != wanted:
            values = wanted.model_dump(mode="json", exclude_defaults=True)
            changes.append(f"monitoring={json.dumps(values)}")
        session = partial(api.resume, str(paths.root), overrides=changes, address=address)
    else:
        shutil.rmtree(paths.root, ignore_errors=True)  # a kill while the folder was made
        storage, sweep = str(paths.storage.root), _sweep(stage, context)
        session = partial(api.run, sweep, name=stage.name, storage=storage, address=address)
    ended = context.run_session(session)
    if ended.interrupted:
        raise StageStopped(f"stage {stage.name} was interrupted", 1 if ended.gave_up else 130)
    if not ended.table.has_result:
        shown = f"tune show {sweep_argument(paths)}"
        raise StageStopped(f"no trial of stage {stage.name} has a value; see: {shown}", 1)
    spec = read_spec(paths)
    line, cost = select_winner(paths, spec).line, total_cost(read_trials(paths), spec.prices)
    value = {spec.metric: line.value}
    priced = {"cost": cost.cost} if spec.prices is not None else {}
    hours = {"cpu_hours": cost.cpu_hours, "gpu_hours": cost.gpu_hours}
    newest = newest_intact(paths.trial(line.record.id))
    models = (checkpoint_ref(line.record, newest, value),) if newest else ()
    return StageOutput({"winner": line.record.id, **value, **hours, **priced}, models)


def _sweep(stage: TrainStage, context: StageContext) -> LoadedSweep:
    """The sweep with the models, tied values and folders of other stages, and what is left."""
    records, model = context.records, model_reference(stage.init)
    inputs = records[stage.name].inputs
    if not all(one.folder.is_dir() for one in inputs):
        for picked in models_of(stage.init or "", context):
            if not export_ref(picked, "hf").folder.is_dir():
                export_selected(picked, "hf", verify=False, force=True)
    begin = {one.path: one.parameters for one in inputs}
    if stage.init and model is None:
        begin = {stage.init: {}}
    tied = {}
    for name, value in stage.tie.items():
        owner, _, parameter = value.partition(".")
        if model is None or owner != model.stage:
            source = context.pipeline.stages[owner]
            assert isinstance(source, TrainStage), "checked when the file is read"
            files = context.paths.sweep(owner).trial(winner_of(source, context.paths, records))
            tied[name] = flattened(read_trial(files).config)[parameter]
    made = with_inputs(context.pipeline, stage, context.folders, begin, tied)
    return limit_budget(made, context)
