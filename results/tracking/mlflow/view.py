"""The view of a sweep's runs in MLflow: which columns and charts its page opens with.

MLflow keeps views that people share as tags of the experiment, and opens one by its key. A view is
what the page's "Share" button stores: JSON, with columns by name and charts by kind.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

from results.tracking.mlflow.client import SWEEP_TAG, TRIAL_TAG, connect
from results.tracking.mlflow.names import mlflow_name

_VIEW_TAG = "mlflow.sharedViewState."
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
    key = hashlib.sha256(view.encode()).hexdigest()
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
    chart = {
        "uuid": "tune-parallel",
        "type": "PARALLEL",
        "metricSectionId": "tune",
        "selectedParams": list(params[:_AXES]),
        "selectedMetrics": list(metrics),
        "runsCountToCompare": 100,
        "showAllRuns": False,
        "deleted": False,
        "isGenerated": False,
    }
    curves = [
        {
            "uuid": f"tune-curve-{i}",
            "type": "LINE",
            "metricSectionId": "tune",
            "metricKey": name,
            "selectedMetricKeys": [name],
            "xAxisKey": "step",
            "runsCountToCompare": 100,
            "lineSmoothness": 0,
            "scaleType": "linear",
            "deleted": False,
            "isGenerated": False,
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
        "compareRunSections": [{**section, "deleted": False, "isGenerated": False}],
    }
