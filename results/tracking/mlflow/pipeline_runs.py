"""A pipeline in MLflow: a run with its stages nested below, and what each began with.

A train stage's run is that of its sweep, which is delivered on its own. Models that flowed are
logged models of MLflow: outputs of the stage's run, and inputs of the runs that began with them.
Files of data stages are datasets.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from results.report.pipeline_data import PipelineData, StageLine
from results.storage.fencing import Fence
from results.tracking.mlflow.client import (
    AVERAGE_TAG,
    PARENT_TAG,
    PIPELINE_TAG,
    STAGE_TAG,
    SWEEP_TAG,
    TRIAL_TAG,
)
from results.tracking.mlflow.flows import datasets, link_inputs, link_output, logged_model
from results.tracking.mlflow.run_store import RunStore, StoredRun
from results.tracking.tracker import PipelineFacts
from search_spaces.nested import flattened

_ENDED = {"complete": "FINISHED", "interrupted": "KILLED"}


class PipelineRuns:
    """The runs of one pipeline in one experiment. Any method may raise what MLflow raises.

    Args:
        uri, artifact_root, experiment, fence: see `RunStore`.
        facts, data: of the pipeline.
        sweeps: train stage → the key of its sweep, for those that are delivered there.
    """

    def __init__(
        self,
        uri: str,
        artifact_root: Path | None,
        experiment: str,
        fence: Fence,
        facts: PipelineFacts,
        data: PipelineData,
        sweeps: Mapping[str, str],
    ) -> None:
        self._runs = RunStore(uri, artifact_root, experiment, fence)
        self._facts, self._lines = facts, {line.name: line for line in data.stages}
        self._parent = self._runs.pipeline(facts)
        found = self._runs.find(PIPELINE_TAG, facts.key)
        self._own = {run.tags[STAGE_TAG]: run for run in found if STAGE_TAG in run.tags}
        self._sweeps = dict(sweeps)
        self._of = {name: list(self._runs.find(SWEEP_TAG, key)) for name, key in sweeps.items()}
        self._models: dict[tuple[str, str], str] = {}

    def deliver(self, spec: str) -> None:
        """Bring the pipeline's run, and those of its stages, up to date.

        Args:
            spec: content of `pipeline.yaml`.
        """
        begun = [line for line in self._lines.values() if line.state != "to run"]
        for line in begun:
            self._stage(line)
        points = {
            (f"{line.name}/{name}", int(line.began or 0)): (value, time.time())
            for line in begun
            for name, value in [*line.metrics.items(), ("seconds", line.seconds or 0.0)]
        }
        states = ", ".join(f"{line.name} {line.state}" for line in self._lines.values())
        metrics = self._runs.unsent(self._parent, points)
        self._runs.log(self._parent, tags={"tune.stages": states}, metrics=metrics)
        self._runs.store(self._parent, {"pipeline.yaml": spec})
        whole = all(line.state == "complete" for line in self._lines.values())
        self._runs.end(self._parent, "FINISHED" if whole else "KILLED", time.time())

    def _stage(self, line: StageLine) -> None:
        run = self._run_of(line)
        if run is None:  # its sweep is not tracked here, or not delivered yet
            return
        took = {f"tune.from.{flow.source}": flow.what or "comes after" for flow in line.flows}
        told = {"tune.stage_key": line.key, "tune.put_out": line.put_out}
        self._runs.log(run, tags={PARENT_TAG: self._parent.id, **told, **took})
        models = [self._model(flow.source, model) for flow in line.flows for model in flow.models]
        sources = [(self._lines[flow.source], flow.files, "training") for flow in line.flows]
        sources += [(line, ("*",), "made here")] if line.kind == "data" else []
        files = [one for source in sources for one in datasets(*source)]
        link_inputs(self._runs, run, [model for model in models if model], files)
        if (own := self._model(line.name, line.model)) is not None:
            link_output(self._runs, run, own)

    def _run_of(self, line: StageLine) -> StoredRun | None:
        """The run of a stage; that of a stage that is no sweep is brought up to date."""
        if line.sweep is not None:
            known, others = self._of.get(line.name, []), {TRIAL_TAG, AVERAGE_TAG}
            return next((run for run in known if not others & run.tags.keys()), None)
        name = f"{line.name} {line.key}"
        began, seconds = line.began or time.time(), line.seconds or 0.0
        if (run := self._own.get(name)) is None:
            fixed = {PIPELINE_TAG: self._facts.key, STAGE_TAG: name, PARENT_TAG: self._parent.id}
            run = self._own[name] = self._runs.create(line.name, fixed, began)
        points = {(key, 0): (value, began + seconds) for key, value in line.metrics.items()}
        params = {"kind": line.kind, **flattened(line.settings)}
        self._runs.log(run, params=params, metrics=self._runs.unsent(run, points))
        if line.state in _ENDED:
            self._runs.end(run, _ENDED[line.state], began + seconds)
        return run

    def _model(self, stage: str, model: str) -> str | None:
        """The id of the logged model of a trial or soup of a train stage.

        None if the stage is not tracked here, or the run of the trial or soup is not delivered yet.
        """
        paths = self._lines[stage].sweep
        named = (r for r in self._of.get(stage, ()) if r.tags.get("mlflow.runName") == model)
        if paths is None or (source := next(named, None)) is None:
            return None
        if (stage, model) not in self._models:
            made = logged_model(self._runs, self._sweeps[stage], paths, model, source)
            self._models[stage, model] = made
        return self._models[stage, model]
