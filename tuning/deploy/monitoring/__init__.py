"""Prometheus' configuration, alerts, and a dashboard, with the user's thresholds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from tuning.deploy import DeployTemplate

_FILES = ("prometheus.yml", "rules.yml", "alertmanager.yml")
_COLUMNS, _PER_ROW, _HEIGHT = 24, 4, 7
_SOURCE = {"type": "datasource", "name": "source", "query": "prometheus", "label": "Source"}
_SWEEP = {
    "type": "query",
    "name": "sweep",
    "label": "Sweep",
    "datasource": {"type": "prometheus", "uid": "$source"},
    "query": "label_values(tune_build_info, sweep)",
    "refresh": 2,
    "multi": True,
    "includeAll": True,
    "current": {"text": "All", "value": "$__all"},
}


def rendered(values: Mapping[str, object]) -> dict[str, str]:
    """Content of each file by name; `values` fills its `@{placeholders}`.

    Raises:
        KeyError: a placeholder has no value.
    """
    texts = {name: DeployTemplate(_read(name)).substitute(values) for name in _FILES}
    return {**texts, "dashboard.json": json.dumps(dashboard(), indent=1) + "\n"}


def panels() -> dict[str, list[dict[str, Any]]]:
    """Panels by row, as in `panels.yml`."""
    from ruamel.yaml import YAML

    found: dict[str, list[dict[str, Any]]] = YAML(typ="safe").load(_read("panels.yml"))
    return found


def dashboard() -> dict[str, Any]:
    """A dashboard for Grafana's "Import"."""
    made: list[dict[str, Any]] = []
    y = 0
    for row, members in panels().items():
        place = {"x": 0, "y": y, "w": _COLUMNS, "h": 1}
        made.append({"type": "row", "title": row, "gridPos": place, "panels": []})
        y += 1
        width = _COLUMNS // min(_PER_ROW, len(members))
        for number, panel in enumerate(members):
            line, column = divmod(number, _PER_ROW)
            place = {"x": column * width, "y": y + line * _HEIGHT, "w": width, "h": _HEIGHT}
            made.append({**_panel(panel), "gridPos": place})
        y += -(-len(members) // _PER_ROW) * _HEIGHT
    for number, panel in enumerate(made, 1):
        panel["id"] = number
    return {
        "title": "Sweeps",
        "uid": "tune-sweeps",
        "schemaVersion": 36,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": [_SOURCE, _SWEEP]},
        "panels": made,
    }


def _panel(panel: Mapping[str, Any]) -> dict[str, Any]:
    targets = [
        {"refId": chr(ord("A") + i), "expr": expr, "legendFormat": legend}
        for i, (legend, expr) in enumerate(panel["queries"].items())
    ]
    return {
        "type": "timeseries",
        "title": panel["title"],
        "datasource": {"type": "prometheus", "uid": "$source"},
        "fieldConfig": {"defaults": {"unit": panel["unit"]}, "overrides": []},
        "targets": targets,
    }


def _read(name: str) -> str:
    return files(__name__).joinpath(name).read_text(encoding="utf-8")
