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
    SWEEP_TAG,
    TRIAL_TAG,
    connect,
    search,
)
from results.tracking.mlflow.database import sqlite_file
from search_spaces.errors import UserError
from search_spaces.redaction import redact

if TYPE_CHECKING:
    from collections.abc import Iterator

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
    try:
        return [_saved(run) for run in _runs(uri, key)]
    except Exception as e:  # of MLflow, its database or the network
        raise _unreachable(uri, e) from e


def restore_runs(uri: str, key: str, saved: Sequence[SavedRun]) -> int:
    """Give the runs of a delivered sweep the names and tags that were saved.

    Returns:
        Number of runs that were changed.

    Raises:
        UserError: the tracker does not answer.
    """
    wanted = {(s.trial, s.average): s for s in saved}
    try:
        return sum(_restore(uri, run, wanted) for run in list(_runs(uri, key)))
    except Exception as e:  # of MLflow, its database or the network
        raise _unreachable(uri, e) from e


def _restore(uri: str, run: Run, wanted: dict[tuple[str, str], SavedRun]) -> bool:
    from mlflow.entities import RunTag

    now = _saved(run)
    then = wanted.get((now.trial, now.average), now)
    tags = [RunTag(k, v) for k, v in then.tags.items() if now.tags.get(k) != v]
    client = connect(uri)
    if tags:
        client.log_batch(run.info.run_id, tags=tags)
    if then.name != now.name:
        client.update_run(run.info.run_id, name=then.name)
    return bool(tags) or then.name != now.name


def _runs(uri: str, key: str) -> Iterator[Run]:
    client = connect(uri)
    experiments = [e.experiment_id for e in client.search_experiments()]
    return search(client, experiments, SWEEP_TAG, key)


def _saved(run: Run) -> SavedRun:
    tags = run.data.tags
    return SavedRun(
        trial=tags.get(TRIAL_TAG, ""),
        average=tags.get(AVERAGE_TAG, ""),
        name=run.info.run_name,
        tags={k: v for k, v in tags.items() if not k.startswith(_DELIVERED)},
    )


def _unreachable(uri: str, error: Exception) -> UserError:
    reason = (str(error).splitlines() or [type(error).__name__])[0]
    return UserError(f"MLflow at {redact(uri)} does not answer ({redact(reason)})")
