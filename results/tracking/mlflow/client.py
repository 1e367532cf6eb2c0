"""A connection to MLflow that prints nothing and times out early, as `delivery` retries.

Also names and values that MLflow takes: for one that it refuses it stores nothing of a whole call.
"""

from __future__ import annotations

import hashlib
import logging
import os
import posixpath
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from results.tracking.mlflow.database import prepare_database
from search_spaces.errors import UserError
from search_spaces.redaction import redact

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run


SWEEP_TAG, TRIAL_TAG, PARENT_TAG = "tune.sweep", "tune.trial_id", "mlflow.parentRunId"
PIPELINE_TAG, STAGE_TAG = "tune.pipeline", "tune.stage"
"""Identity of a pipeline; name and key of one of its stages that is no sweep."""
AVERAGE_TAG, STOPPED_TAG = "tune.average", "stopped"
"""Digest of the average that a run shows; see `results.tracking.extras`."""
NOTE_TAG = "mlflow.note.content"
"""A run's description; set when it is created: people may write their own."""

_KIND = {"mlflow.experimentKind": "custom_model_development"}
"""Of an experiment: some versions of MLflow's pages show runs instead of GenAI by it."""
QUIET = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}
_SHORT_TIMEOUTS = {  # MLflow's own limits add up to four minutes for one call
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "15",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
}


def import_mlflow() -> None:
    """Import what a connection to any store or server needs, which takes seconds."""
    _be_quiet()
    import mlflow.store.tracking.sqlalchemy_store  # noqa: F401


def _be_quiet() -> None:
    for name, value in {**QUIET, **_SHORT_TIMEOUTS}.items():
        os.environ.setdefault(name, value)


def connect(uri: str) -> MlflowClient:
    """A client of a store (`sqlite:///…`, see `prepare_database`) or server (`http://…`).

    Raises:
        UserError: the SQLite file cannot be made.
    """
    _be_quiet()
    from mlflow import MlflowClient

    for logger in ("mlflow", "alembic", "urllib3"):
        logging.getLogger(logger).setLevel(logging.CRITICAL)  # the exceptions say it
    prepare_database(uri)
    return MlflowClient(uri)


@contextmanager
def explain_errors(uri: str) -> Iterator[None]:
    """Explain the errors of a server that is not there, or is not one of MLflow.

    Raises:
        UserError: it does not answer.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as e:  # of MLflow, its database or the network
        reason = redact((str(e).splitlines() or [type(e).__name__])[0])
        place = f"MLflow at {redact(uri)}"
        raise UserError(f"{place} does not answer ({reason}); check tracking.uri") from e


def check_reachable(uri: str) -> None:
    """Ask a store or server for an experiment, once; see `explain_errors`."""
    with explain_errors(uri):
        connect(uri).search_experiments(max_results=1)


def experiment_id(client: MlflowClient, name: str, artifact_root: Path | None) -> str:
    """The id of the experiment of this name, which is created if there is none.

    `artifact_root` is the folder for a new experiment's artifacts; None leaves it to the server.

    Raises:
        UserError: it is deleted.
    """
    from mlflow.exceptions import MlflowException

    location = artifact_root.absolute().as_uri() if artifact_root else None
    found = client.get_experiment_by_name(name)
    try:
        if found is None:
            return str(client.create_experiment(name, location, _KIND))
    except MlflowException:  # another sweep created it in the meantime
        if (found := client.get_experiment_by_name(name)) is None:
            raise
    number = str(found.experiment_id)
    if found.lifecycle_stage == "deleted":
        restore = f"mlflow experiments restore --experiment-id {number}"
        raise UserError(f"experiment {name} is deleted there: {restore}, or tracking.experiment")
    return number


def search(client: MlflowClient, experiments: list[str], tag: str, value: str) -> Iterator[Run]:
    """Every run with a tag: those of a sweep are its own, and of its trials and averages."""
    quote = '"' if "'" in value else "'"
    query, token = f"tags.`{tag}` = {quote}{value}{quote}", None
    while True:
        page = client.search_runs(experiments, query, max_results=1000, page_token=token)
        yield from page
        token = page.token
        if not token:
            return


def runs_of_sweep(client: MlflowClient, key: str, tag: str = SWEEP_TAG) -> Iterator[Run]:
    """Every run of a sweep, or with another tag, in all experiments."""
    found = client.search_experiments(max_results=_EXPERIMENTS)
    return search(client, [e.experiment_id for e in found], tag, key)


_EXPERIMENTS = 50_000
"""The most that MLflow lists at once; its default is 1,000."""
_NAME, _VALUE, _DIGEST = 250, 6000, 8
"""Characters of a name, of the value of a parameter or tag, and of the digest in a name."""
_HAS_DIGEST = re.compile(rf"--[0-9a-f]{{{_DIGEST}}}$")


def mlflow_name(name: str) -> str:
    """The name that a metric, parameter or tag has in MLflow, without secrets.

    Different names stay different: one that has to be changed ends in a digest of what it was, and
    so does one that looks as if it did.
    """
    name = redact(name)
    path = posixpath.normpath(re.sub(r"[^\w\-. :/]", "_", name)).lstrip("/")
    if path.startswith("..") or path == ".":  # MLflow takes no name that leads out of a folder
        path = path.lstrip("./")
    return _distinct(name, path or "_", _NAME)


def shortened(name: str, limit: int) -> str:
    """A name of at most `limit` characters, another one for each name."""
    return _distinct(name, name, limit)


def mlflow_value(value: object) -> str:
    """The text of a parameter or tag; one that had to be cut ends in `…`."""
    text = str(value).replace("\0", "␀").encode("utf-8", "replace").decode()
    return text if len(text) <= _VALUE else f"{text[: _VALUE - 1]}…"


def _distinct(name: str, changed: str, limit: int) -> str:
    if changed == name and len(name) <= limit and not _HAS_DIGEST.search(name):
        return name
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST]
    return f"{changed[: limit - _DIGEST - 2]}--{digest}"
