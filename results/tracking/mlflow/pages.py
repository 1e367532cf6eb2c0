"""MLflow's own pages: addresses, the view of a sweep's runs, and the command that serves them.

MLflow keeps views that people share as tags of the experiment, and opens one by its key. A view is
what the page's "Share" button stores: JSON, with columns by name and charts by kind.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

from results.own_program import PROGRAM, module_command
from results.tracking.mlflow.client import (
    QUIET,
    SWEEP_TAG,
    TRIAL_TAG,
    connect,
    explain_errors,
    mlflow_name,
    runs_of_sweep,
)
from results.tracking.mlflow.own_origin import ADDRESSES
from search_spaces.errors import UserError
from search_spaces.redaction import redact

if TYPE_CHECKING:
    from mlflow.entities import Run


_RUNS = "?workflowType=machine_learning"
"""MLflow's page shows the navigation of runs, not that of GenAI."""
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
    page = f"/experiments/{found.experiment_id}/runs{_RUNS}" if found else ""
    chosen = f"&viewStateShareKey={view}" if found and view else ""
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


def ui_environment(uri: str, addresses: Mapping[str, str] | None = None) -> dict[str, str]:
    """Variables that `ui_command` needs in addition to the present environment.

    Args:
        uri: of the store.
        addresses: the long address of each short one, see `own_origin.ADDRESSES`.
    """
    quiet = {**QUIET, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    safe = {"PYTHONSAFEPATH": "1"}  # as `-P`, for the processes that it starts
    short = {ADDRESSES: json.dumps(dict(addresses or {}))}
    return {**quiet, **safe, **short, "MLFLOW_BACKEND_STORE_URI": uri}


_VIEW_TAG = "mlflow.sharedViewState."
_KEY = 12
"""Characters of a view's key, which is in addresses."""
_AXES = 8
"""Parameters of the plot with parallel coordinates; more cannot be told apart."""
_FIRST = ("attributes.`Run Name`", "runDateAndNestInfo")
_RATES = ("lr", "learning_rate")


def params_first(params: Sequence[str], importance: Sequence[str]) -> list[str]:
    """Names of parameters: the important ones first, then learning rates, then the others.

    Args:
        params: all names.
        importance: names of those with a known importance, the most important one first.
    """
    known = [name for name in importance if name in params]
    rest = [name for name in params if name not in known]
    return known + sorted(rest, key=lambda name: not name.rpartition(".")[2].endswith(_RATES))


def store_view(
    uri: str,
    experiment: str,
    sweep: str,
    metrics: Sequence[str],
    params: Sequence[str],
    *,
    ascending: bool,
) -> str | None:
    """Store the view of a sweep; returns its key, or None if nothing can be stored there.

    Args:
        uri: of the store or server.
        experiment: its name.
        sweep: key of the sweep.
        metrics: its objectives.
        params: in the order of their importance.
        ascending: whether the lowest value of the first metric comes first.
    """
    from mlflow.exceptions import MlflowException

    client = connect(uri)
    names = [mlflow_name(name) for name in metrics], [mlflow_name(name) for name in params]
    view = json.dumps(_view(sweep, *names, ascending))
    key = hashlib.sha256(view.encode()).hexdigest()[:_KEY]
    try:
        found = client.get_experiment_by_name(experiment)
        if found is None:
            return None
        if found.tags.get(_VIEW_TAG + key) != view:
            client.set_experiment_tag(found.experiment_id, _VIEW_TAG + key, view)
    except MlflowException:  # a reader may not write
        return None
    return key


def _view(
    sweep: str, metrics: Sequence[str], params: Sequence[str], ascending: bool
) -> dict[str, object]:
    shown = [*(f"metrics.`{name}`" for name in metrics), *(f"params.`{name}`" for name in params)]
    columns = [*shown, "tags.`tune.reason`"]
    # the key of a view is the digest of this text: the order counts
    ours = {"deleted": False, "isGenerated": False}
    chart = {
        **{"uuid": "tune-parallel", "type": "PARALLEL", "metricSectionId": "tune"},
        **{"selectedParams": list(params[:_AXES]), "selectedMetrics": list(metrics)},
        **{"runsCountToCompare": 100, "showAllRuns": False, **ours},
    }
    curves = [
        {
            **{"uuid": f"tune-curve-{i}", "type": "LINE", "metricSectionId": "tune"},
            **{"metricKey": name, "selectedMetricKeys": [name], "xAxisKey": "step"},
            **{"runsCountToCompare": 100, "lineSmoothness": 0, "scaleType": "linear", **ours},
        }
        for i, name in enumerate(metrics)
    ]
    section = {"uuid": "tune", "name": "Sweep", "display": True, "isReordered": False, "columns": 1}
    return {
        "searchFilter": f"tags.`{SWEEP_TAG}` = '{sweep}' and tags.`{TRIAL_TAG}` != ''",
        "orderByKey": shown[0],  # any other than the time: then children are not folded away
        "orderByAsc": ascending,
        "selectedColumns": columns,
        "columnOrder": [*_FIRST, *columns],
        "runsHiddenMode": "SHOW_ALL",
        "compareRunCharts": [chart, *curves],
        "compareRunSections": [{**section, **ours}],
    }
