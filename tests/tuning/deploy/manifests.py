"""Checks of manifests: schemas, and what no schema knows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate

from tests.tuning.deploy.kustomize import Manifest, read

VERSION = "1.37"
UNITS = {"m": 1e-3, "": 1.0, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40}
_TRIMMED = read(Path(__file__).with_name("custom_resources.yaml"))[0]


def check_schema(manifest: Manifest) -> None:
    """Refuse unknown fields, missing ones, and wrong types."""
    group = manifest["apiVersion"].partition("/")[0]
    if manifest["kind"] in _TRIMMED:
        jsonschema.validate(manifest, _whole(_TRIMMED[manifest["kind"]]))
        assert "." in group
    else:
        kubernetes_validate.validate(manifest, VERSION, strict=True)
    for template in templates(manifest):
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"} | template["metadata"]}
        kubernetes_validate.validate(pod | {"spec": template["spec"]}, VERSION, strict=True)


def _whole(trimmed: dict[str, Any]) -> dict[str, Any]:
    top = {key: {"type": "string"} for key in ("apiVersion", "kind")} | {
        "metadata": {"type": "object"}
    }
    if "beside" in trimmed:
        return _closed(trimmed["beside"], top)
    schema = _closed({"required": ["spec"] if trimmed.get("required") else [], "fields": {}}, top)
    schema["properties"]["spec"] = _json_schema(trimmed)
    return schema


def _closed(trimmed: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "additionalProperties": False,
        "required": trimmed.get("required", []),
        "properties": more | {k: _json_schema(v) for k, v in trimmed["fields"].items()},
    }


def _json_schema(trimmed: dict[str, Any]) -> dict[str, Any]:
    if "each" in trimmed:
        return {"type": "array", "minItems": 1, "items": _json_schema(trimmed["each"])}
    if "fields" in trimmed:
        return _closed(trimmed, {})
    return {"type": "object", "required": ["metadata", "spec"]} if "pod" in trimmed else trimmed


def templates(value: Any) -> Iterator[dict[str, Any]]:
    """The pod templates within a manifest."""
    if isinstance(value, dict):
        if "containers" in value.get("spec", {}) if isinstance(value.get("spec"), dict) else False:
            yield value
        for inner in value.values():
            yield from templates(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from templates(inner)


def containers(template: dict[str, Any]) -> list[dict[str, Any]]:
    return [*template["spec"].get("initContainers", []), *template["spec"]["containers"]]


def quantity(text: object) -> float:
    match = re.fullmatch(r"([0-9.]+)(m|Mi|Gi|Ti|)", str(text))
    assert match, f"not a quantity: {text}"
    return float(match[1]) * UNITS[match[2]]


def selects(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    """Whether a selector of labels, of either form, takes a pod."""
    wanted = selector.get("matchLabels", {})
    rules = selector.get("matchExpressions", [])
    return all(labels.get(k) == v for k, v in wanted.items()) and all(
        r["operator"] == "In" and labels.get(r["key"]) in r["values"] for r in rules
    )
