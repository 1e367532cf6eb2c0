"""Shows a pipeline in MLflow, where its train stages are tracked."""

from __future__ import annotations

from results.models.stages import original_of, read_stages
from results.records.pipeline import PipelinePaths
from results.records.spec_file import read_spec
from results.report.pipeline_data import read_pipeline_data
from results.storage.fencing import Fence
from results.sweep_folder.folder import pipeline_argument, read_state
from results.tracking import PipelineFacts
from search_spaces.pipeline.loading import LoadedPipeline, load_pipeline
from search_spaces.redaction import redact
from tuning.controller.tracking.observer import artifact_root, experiment_of, tracking_uri
from tuning.pipelines.base import Notify

Stores = dict[tuple[str, str], list[str]]
"""URI and experiment in MLflow → the train stages that are tracked there."""


def tracked_stages(pipeline: LoadedPipeline, paths: PipelinePaths) -> Stores:
    """Where the train stages that have begun are tracked."""
    found: Stores = {}
    for name in pipeline.sweeps:
        sweep = paths.sweep(name)
        if sweep.is_sweep and (spec := read_spec(sweep)).tracking.name != "none":
            where = tracking_uri(spec, sweep), experiment_of(spec, sweep)
            found.setdefault(where, []).append(name)
    return found


def deliver_pipeline(paths: PipelinePaths, fence: Fence) -> str | None:
    """Bring the pipeline's own runs up to date, each time from its folder.

    Args:
        fence: of the pipeline's lock.

    Returns:
        One line on what could not be delivered; None if everything was.
    """
    pipeline, identity = load_pipeline(paths.spec), read_stages(paths).identity
    stages = tracked_stages(pipeline, paths)
    if not stages or not identity:
        return None
    if (original := original_of(paths)) is not None:
        return f"{paths.root} is a copy of {original}, whose runs MLflow has"
    from results.tracking.mlflow.pipeline_runs import PipelineRuns

    data, facts = read_pipeline_data(paths, driven=False), PipelineFacts(identity, paths.name)
    spec = redact(paths.spec.read_text(encoding="utf-8"))
    for (uri, experiment), names in stages.items():
        keys = {name: read_state(paths.sweep(name)).key for name in names}
        artifacts = artifact_root(uri, paths.sweep(names[0]))
        try:
            runs = PipelineRuns(uri, artifacts, experiment, fence, facts, data, keys)
            runs.deliver(spec)
        except Exception as e:  # noqa: BLE001 - whatever MLflow raises, the pipeline is complete
            line = (str(e).splitlines() or [""])[0]
            return redact(f"MLflow at {uri}: {type(e).__name__}: {line}")
    return None


def track_pipeline(paths: PipelinePaths, fence: Fence, notify: Notify) -> None:
    """Deliver at the end of a session, and tell what has to be delivered later."""
    if problem := deliver_pipeline(paths, fence):
        notify(f"not in MLflow yet ({problem}); later: tune sync {pipeline_argument(paths)}")
