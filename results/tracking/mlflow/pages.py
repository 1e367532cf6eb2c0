"""Addresses of MLflow's own pages, and the command that serves them."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

from results.own_program import PROGRAM, module_command
from results.tracking.mlflow.client import (
    QUIET,
    TRIAL_TAG,
    connect,
    explain_errors,
    runs_of_sweep,
)
from results.tracking.mlflow.names import mlflow_name
from search_spaces.errors import UserError
from search_spaces.redaction import redact

if TYPE_CHECKING:
    from mlflow.entities import Run

_PROTOCOL = "results.tracking.mlflow.own_origin:protocol"


def comparison_url(base: str, uri: str, sweep_keys: Sequence[str], limit: int = 100) -> str:
    """Address of the page that compares the trials of one or several sweeps.

    Args:
        base: address of the server's pages, such as `http://127.0.0.1:5000`.
        limit: largest number of runs, because the page becomes unreadable and the address too long;
            the first trials of each sweep are compared.

    Raises:
        UserError: the store has no run of a sweep's trials, or is not one of MLflow.
    """
    runs: list[Run] = []
    for key in sweep_keys:
        with explain_errors(uri):
            every = runs_of_sweep(connect(uri), key)
            found = [run for run in every if TRIAL_TAG in run.data.tags]
        if not found:
            raise UserError(f"MLflow at {redact(uri)} has no runs of sweep '{key}'")
        found.sort(key=lambda run: run.data.tags[TRIAL_TAG])
        runs += found[: max(1, limit // len(sweep_keys))]
    ids = quote(json.dumps([r.info.run_id for r in runs], separators=(",", ":")))
    experiment_ids = quote(json.dumps(sorted({r.info.experiment_id for r in runs})))
    return f"{base.rstrip('/')}/#/compare-runs?runs={ids}&experiments={experiment_ids}"


def curves_url(comparison: str, metric: str) -> str:
    """Address of the page with a metric's curves, for the runs of a `comparison_url`."""
    base, _, runs = comparison.partition("#/compare-runs?")
    metric = mlflow_name(metric)
    view = {
        "metric": json.dumps(metric),
        "plot_metric_keys": json.dumps([metric]),
        "plot_layout": "{}",
        "x_axis": "step",
        "y_axis_scale": "linear",
        "line_smoothness": "1",
        "show_point": "false",
        "deselected_curves": "[]",
        "last_linear_y_axis_range": "[]",
    }
    return f"{base}#/metric?{runs}&{urlencode(view, quote_via=quote)}"


def experiment_url(base: str, uri: str, experiment: str, view: str | None = None) -> str:
    """Address of the page of an experiment; the start page when there is none.

    Args:
        view: key of a view, see `results.tracking.mlflow.view`.

    Raises:
        UserError: the server does not answer, or not as one of MLflow.
    """
    with explain_errors(uri):
        found = connect(uri).get_experiment_by_name(experiment)
    page = f"/experiments/{found.experiment_id}/runs" if found else ""
    chosen = f"?viewStateShareKey={view}" if found and view else ""
    return f"{base.rstrip('/')}/#{page}{chosen}"


def ui_command(artifact_root: Path, host: str, port: int) -> list[str]:
    """Command that serves MLflow's pages for a store without a server.

    `ui_environment` passes the store's address: it may hold a password, which a command line
    would show to every user of the machine. The server only answers requests to this host, and of
    web pages only its own (`results.tracking.mlflow.own_origin`).
    """
    hosts = ",".join(f"{name}:{port}" for name in dict.fromkeys([host, "localhost"]))
    where = ["--host", host, "--port", str(port), "--allowed-hosts", hosts, "--workers", "1"]
    # uvicorn looks for modules in its --app-dir first: the working directory, if none is given
    where += ["--uvicorn-opts", f"--http {_PROTOCOL} --app-dir {shlex.quote(str(PROGRAM))}"]
    artifacts = ["--default-artifact-root", artifact_root.absolute().as_uri()]
    return module_command("mlflow", "server", *where, *artifacts, "--no-serve-artifacts")


def ui_environment(uri: str) -> dict[str, str]:
    """Variables that `ui_command` needs in addition to the present environment."""
    quiet = {**QUIET, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    safe = {"PYTHONSAFEPATH": "1"}  # as `-P`, for the processes that it starts
    return {**quiet, **safe, "MLFLOW_BACKEND_STORE_URI": uri}
