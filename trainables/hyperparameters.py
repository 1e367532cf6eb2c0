"""The hyperparameters of trainables, as rows of a table and in the JSON Schema of sweep files."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from search_spaces.loading.explain import rule
from search_spaces.loading.json_schema import compact, json_schema
from trainables.base import Trainable
from trainables.registry import TRAINABLES, resolve


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
    """JSON Schema of sweep files, with the keys that `fixed` has for each registered trainable.

    What trainables share stands once: in a definition, or with the first one that has the key.
    """
    schema = json_schema()
    schema["allOf"] = [
        {
            "if": {"properties": {"trainable": {"const": name}}, "required": ["trainable"]},
            "then": {"properties": {"fixed": {"$ref": f"#/$defs/{name}"}}},
        }
        for name in TRAINABLES
    ]
    for name in TRAINABLES:
        config = resolve(name).Config.model_json_schema()
        for key, part in _named(name, config, schema["$defs"]):
            schema["$defs"][key] = _optional(part)
    schema["$defs"]["formula"] = {"type": "string", "pattern": "^="}
    return compact(schema)


def _named(
    name: str, config: dict[str, Any], there: Mapping[str, Any]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """A trainable's definition and those in it, which get its name too where another has theirs."""
    inner = config.pop("$defs", {})
    taken = [
        key for key, part in inner.items() if there.get(key, _optional(part)) != _optional(part)
    ]
    text = json.dumps({name: config, **inner})
    for key in taken:
        text = text.replace(f'"#/$defs/{key}"', f'"#/$defs/{name}.{key}"')
    for key, part in json.loads(text).items():
        yield f"{name}.{key}" if key in taken else key, part


def _optional(part: dict[str, Any]) -> dict[str, Any]:
    """A definition whose keys are all optional, and may be formulas."""
    if "properties" not in part:
        return part
    fields = {key: _with_formula(field) for key, field in part["properties"].items()}
    kept = {key: value for key, value in part.items() if key != "required"}
    return {**kept, "properties": fields}


def _with_formula(field: dict[str, Any]) -> dict[str, Any]:
    about: dict[str, Any] = {key: field[key] for key in ("description", "default") if key in field}
    rules = {key: value for key, value in field.items() if key not in about and key != "title"}
    branches = rules.get("anyOf", [rules])
    if {"type": "string"} in branches:  # any text, so a formula too
        return field
    return {**about, "anyOf": [*branches, {"$ref": "#/$defs/formula"}]}
