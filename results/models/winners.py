"""The trial that won a stage of a pipeline, by its own metric or by that of a later stage."""

from __future__ import annotations

from collections.abc import Mapping

from results.analysis.selection import rank_candidates, select_winner
from results.models.origins import origin_of
from results.models.stages import StageRecord, read_stages
from results.paths import SweepPaths
from results.records.pipeline import PipelinePaths
from results.records.spec_file import read_spec
from results.records.trial import read_trial
from search_spaces.nested import flattened
from search_spaces.pipeline.loading import LoadedPipeline
from search_spaces.pipeline.references import MetricReference, metric_reference
from search_spaces.pipeline.stages import TrainStage
from search_spaces.spec.select import SelectSpec

ORIGIN = "model_name_or_path"
"""The parameter of a trainable that names the model to begin with."""


def winners_by_later_stages(pipeline: LoadedPipeline, paths: PipelinePaths) -> dict[str, str]:
    """The winners by `choose_by`, of the stages for which the later stage is complete."""
    records = read_stages(paths).stages
    return {
        name: winner_of(stage, paths, records)
        for name, stage in pipeline.stages.items()
        if isinstance(stage, TrainStage)
        and stage.choose_by is not None
        and (judge := records.get(metric_reference(stage.choose_by).stage)) is not None
        and judge.done
    }


def winner_of(
    stage: TrainStage, pipeline: PipelinePaths, records: Mapping[str, StageRecord]
) -> str:
    """The trial that won a train stage, by its own metric or by that of `choose_by`."""
    if stage.choose_by is None:
        paths = pipeline.sweep(stage.name)
        return select_winner(paths, read_spec(paths)).line.record.id
    judge = metric_reference(stage.choose_by)
    files = pipeline.sweep(judge.stage)
    path = flattened(read_trial(files.trial(_best_by(judge, files))).config)[ORIGIN]
    names = {model.path: model.name for model in records[judge.stage].inputs}
    if path not in names and (origin := origin_of(path)):  # the version before recorded no inputs
        return origin.model
    return names[path]


def _best_by(judge: MetricReference, paths: SweepPaths) -> str:
    spec = read_spec(paths)
    mode = judge.mode or {o.metric: o.mode for o in spec.objectives}[judge.metric]
    if judge.metric == spec.metric and mode == spec.mode:
        return select_winner(paths, spec).line.record.id
    changed = {"metrics": judge.metric, "modes": mode, "select": SelectSpec()}
    other = spec.model_copy(update=changed)
    return rank_candidates(paths, other, other.select)[0].record.id
