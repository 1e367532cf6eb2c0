"""The hyperparameters of trainables, as rows of a table and in the JSON Schema of sweep files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from search_spaces.loading.explain import rule
from search_spaces.loading.json_schema import json_schema
from trainables.base import Trainable
from trainables.registry import TRAINABLES, resolve

_FORMULA = {"type": "string", "pattern": "^="}


def hyperparameters(trainable: Trainable[Any]) -> list[dict[str, Any]]:
    """One row per hyperparameter: its dotted name, default, rule and meaning with its unit.

    Groups of them are last.
    """
    schema = trainable.Config.model_json_schema()
    return sorted(_rows(schema, schema, ""), key=lambda row: "." in row["name"])


def _rows(part: Mapping[str, Any], schema: Mapping[str, Any], prefix: str) -> Iterator[Any]:
    for name, field in part.get("properties", {}).items():
        inner = schema["$defs"][field["$ref"].rpartition("/")[2]] if "$ref" in field else {}
        if "properties" in inner:
            yield from _rows(inner, schema, f"{prefix}{name}.")
            continue
        yield {
            "name": f"{prefix}{name}",
            "required": name in part.get("required", ()),
            "default": field.get("default"),
            "rule": rule(field, schema),
            "meaning": field.get("description", ""),
        }


def sweep_schema() -> dict[str, Any]:
    """JSON Schema of sweep files, with the keys that `fixed` has for each registered trainable."""
    schema = json_schema()
    schema["allOf"] = [
        {
            "if": {"properties": {"trainable": {"const": name}}, "required": ["trainable"]},
            "then": {"properties": {"fixed": {"$ref": f"#/$defs/{name}"}}},
        }
        for name in TRAINABLES
    ]
    for name in TRAINABLES:
        schema["$defs"] |= _fixed(name, resolve(name).Config.model_json_schema())
    return schema


def _fixed(name: str, config: dict[str, Any]) -> dict[str, Any]:
    """The definitions of a trainable's `fixed`: every key is optional, and may be a formula."""
    inner = {f"{name}.{key}": part for key, part in config.pop("$defs", {}).items()}
    moved = _moved({name: config, **inner}, f"#/$defs/{name}.")
    return {key: _optional(part) for key, part in moved.items()}


def _optional(part: dict[str, Any]) -> dict[str, Any]:
    if "properties" not in part:
        return part
    fields = {
        key: {"anyOf": [field, _FORMULA], "description": field.get("description", "")}
        for key, field in part["properties"].items()
    }
    kept = {key: value for key, value in part.items() if key != "required"}
    return {**kept, "properties": fields}


def _moved(node: Any, place: str) -> Any:
    """The schema with its references to definitions at another place."""
    if isinstance(node, dict):
        return {
            key: place + value.rpartition("/")[2] if key == "$ref" else _moved(value, place)
            for key, value in node.items()
        }
    return [_moved(part, place) for part in node] if isinstance(node, list) else node
