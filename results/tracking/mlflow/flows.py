"""Logged models and datasets of MLflow: what a run took from others, and what it put out."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING

from results.models.lineage import TrainedModel, ancestors, data_set
from results.models.origins import title_of
from results.paths import SweepPaths
from results.report.pipeline_data import StageLine
from results.tracking.extras import Winner
from results.tracking.mlflow.client import mlflow_name, mlflow_value, shortened
from results.tracking.mlflow.run_store import RunStore, StoredRun
from search_spaces.redaction import redact

if TYPE_CHECKING:
    from mlflow.entities import DatasetInput

_MODEL_TAG = "tune.model"
"""Identifies a logged model: digest of the key of its sweep, and the trial or soup."""
_STEP_TAG = "tune.step"
"""The step of the checkpoint whose files are stored with a logged model."""
_TITLE, _DIGEST = 500, 36
"""Characters of a dataset's name, and of its digest, that MLflow stores; the source has all."""


def logged_model(
    runs: RunStore, sweep_key: str, paths: SweepPaths, model: str, source: StoredRun
) -> str:
    """The id of a model of a sweep, which is created if there is none.

    Args:
        runs: the experiment.
        sweep_key, paths: of the sweep.
        model: its trial or soup.
        source: the run of that trial or soup.
    """
    identity = hashlib.sha256(f"{sweep_key}/{model}".encode()).hexdigest()
    known = runs.reader.search_logged_models(
        [runs.experiment], f"tags.`{_MODEL_TAG}` = '{identity}'", max_results=1
    )
    if known:
        return str(known[0].model_id)
    found = ancestors(paths, model)
    name = re.sub(r"[^\w-]", "_", f"{paths.name}-{model}")
    titles = (f"{a.title} {a.name}" if isinstance(a, TrainedModel) else a.title for a in found)
    tags = {_MODEL_TAG: identity, "tune.ancestors": ", ".join(titles)}
    if found and isinstance(found[-1], TrainedModel):
        tags |= {f"tune.sha256.{file}": digest for file, digest in found[-1].weights.items()}
    tags = {mlflow_name(key): mlflow_value(redact(text)) for key, text in tags.items()}
    made = runs.client.create_logged_model(runs.experiment, name, source.id, tags)
    runs.client.finalize_logged_model(made.model_id, "READY")
    return str(made.model_id)


def store_files(runs: RunStore, model: str, winner: Winner) -> None:
    """Store the files of a winner with its logged model, unless it has those of this step."""
    stored = runs.reader.get_logged_model(model).tags.get(_STEP_TAG)
    if stored == str(winner.step):
        return
    for file in winner.files:
        runs.client.log_model_artifact(model, str(file))
    runs.client.set_logged_model_tags(model, {_STEP_TAG: winner.step, "tune.why": winner.why})


def link_inputs(
    runs: RunStore, run: StoredRun, models: Sequence[str], files: Sequence[DatasetInput]
) -> None:
    """Log logged models, by id, and datasets as inputs of a run, unless it has them."""
    from mlflow.entities import LoggedModelInput

    known = runs.reader.get_run(run.id).inputs
    there = {one.model_id for one in known.model_inputs} if known else set()
    taken = [LoggedModelInput(model) for model in dict.fromkeys(models) if model not in there]
    inputs = known.dataset_inputs if known else []
    had = {(one.dataset.name, one.dataset.digest) for one in inputs}
    new = [one for one in files if (one.dataset.name, one.dataset.digest) not in had]
    if taken or new:
        runs.client.log_inputs(run.id, new or None, taken or None)


def link_output(runs: RunStore, run: StoredRun, model: str) -> None:
    """Log a logged model, by id, as the output of a run, unless it has it."""
    from mlflow.entities import LoggedModelOutput

    known = runs.reader.get_run(run.id).outputs
    if model not in [one.model_id for one in (known.model_outputs if known else [])]:
        runs.client.log_outputs(run.id, [LoggedModelOutput(model, 0)])


def datasets(line: StageLine, patterns: Sequence[str], context: str) -> list[DatasetInput]:
    """The files of a data stage that match one of some globs, and those that it read.

    Args:
        line: the stage.
        patterns: globs of files in its folder; `*` also stands for what it read.
        context: what they were used for.
    """
    from mlflow.entities import Dataset, DatasetInput, InputTag

    made = data_set(line.folder) if patterns else None
    found = []
    for name, digest in (made.digests if made else {}).items():
        if any(fnmatch(name, pattern) for pattern in patterns):
            source = {"uri": redact(str(line.folder / name)), "sha256": digest}
            title = redact(f"{title_of(line.folder)}/{Path(name).as_posix().lstrip('/')}")
            given = Dataset(shortened(title, _TITLE), digest[:_DIGEST], "local", json.dumps(source))
            found.append(DatasetInput(given, [InputTag("mlflow.data.context", context)]))
    return found
