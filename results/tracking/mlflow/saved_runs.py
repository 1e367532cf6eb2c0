"""Saves what people have added to a sweep's runs, and adds it to the runs of a new database.

Metrics, parameters and files are not saved: a delivery brings them from the sweep folder.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from results.sweep_folder.copies.backup import SavedRun
from results.tracking.mlflow.client import (
    AVERAGE_TAG,
    PARENT_TAG,
    STOPPED_TAG,
    TRIAL_TAG,
    connect,
    explain_errors,
    runs_of_sweep,
)
from results.tracking.mlflow.database import sqlite_file

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

_DELIVERED = (
    "tune.",
    STOPPED_TAG,
    "mlflow.source",
    "mlflow.runName",
    "mlflow.runColor",
    PARENT_TAG,
)
"""Beginnings of tags that a delivery sets, or that follow from the database."""


def save_runs(uri: str, key: str) -> list[SavedRun]:
    """The runs of a sweep with the names and tags that they have now.

    Raises:
        UserError: the tracker does not answer.
    """
    if (file := sqlite_file(uri)) is not None and not file.exists():
        return []
    with explain_errors(uri):
        return [_saved(run) for run in runs_of_sweep(connect(uri), key)]


def restore_runs(uri: str, key: str, saved: Sequence[SavedRun]) -> int:
    """Give the runs of a delivered sweep the names and tags that were saved.

    Returns:
        Number of runs that were changed.

    Raises:
        UserError: the tracker does not answer.
    """
    wanted = {(s.trial, s.average): s for s in saved}
    with explain_errors(uri):
        client = connect(uri)
        return sum(_restore(client, run, wanted) for run in list(runs_of_sweep(client, key)))


def _restore(client: MlflowClient, run: Run, wanted: dict[tuple[str, str], SavedRun]) -> bool:
    from mlflow.entities import RunTag

    now = _saved(run)
    then = wanted.get((now.trial, now.average), now)
    tags = [RunTag(k, v) for k, v in then.tags.items() if now.tags.get(k) != v]
    if tags:
        client.log_batch(run.info.run_id, tags=tags)
    if then.name != now.name:
        client.update_run(run.info.run_id, name=then.name)
    return bool(tags) or then.name != now.name


def _saved(run: Run) -> SavedRun:
    tags = run.data.tags
    return SavedRun(
        trial=tags.get(TRIAL_TAG, ""),
        average=tags.get(AVERAGE_TAG, ""),
        name=run.info.run_name,
        tags={k: v for k, v in tags.items() if not k.startswith(_DELIVERED)},
    )
