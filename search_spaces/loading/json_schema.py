"""The JSON Schema of a sweep file, with which editors complete and check it."""

from __future__ import annotations

import json
from typing import Any

from search_spaces.domains.domain import KINDS, LISTS, arguments, optional_arguments
from search_spaces.domains.normal import SPREAD
from search_spaces.spec.base import NamedSection
from search_spaces.spec.sweep import SweepSpec

_MEANING = {
    "uniform": "Any number from lower to upper.",
    "quniform": "A multiple of q from lower to upper.",
    "loguniform": "A number from lower to upper, uniform in its logarithm.",
    "qloguniform": "A multiple of q from lower to upper, uniform in its logarithm.",
    "randint": "A whole number from lower up to, not including, upper.",
    "qrandint": "A whole multiple of q from lower to upper, both included.",
    "lograndint": "A whole number from lower up to, not including, upper, uniform in its log.",
    "qlograndint": "A whole multiple of q from lower to upper, both included, uniform in its log.",
    "randn": f"A number drawn normally, within {SPREAD} sd of the mean (0 and 1 if left out).",
    "qrandn": f"A multiple of q, drawn normally, within {SPREAD} sd of the mean.",
    "choice": "One of the listed values.",
    "ordinal": "One of the listed values, which are in order: neighbours are similar.",
    "grid_search": "Every listed value, in every combination with other grids.",
}
_OPTIONS = {
    "type": "object",
    "description": "Each value with the parameters that belong to it.",
    "minProperties": 1,
    "additionalProperties": {"type": ["object", "null"]},
}


def json_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of the sweep YAML."""
    schema = SweepSpec.model_json_schema()
    space = schema["properties"]["space"]
    space.clear()
    field = SweepSpec.model_fields["space"]
    space |= {"$ref": "#/$defs/Space", "description": field.description}
    for name, section in SweepSpec.sections().items():
        if issubclass(section, NamedSection):
            of_name = {"$ref": f"#/$defs/{section.__name__}/properties/name"}
            forms = {"anyOf": [of_name, schema["properties"][name]]}
            about = {"description": schema["$defs"][section.__name__]["description"]}
            schema["properties"][name] = about | forms
    schema["oneOf"] = [{"required": ["trainable"]}, {"required": ["command"]}]
    schema["$defs"] |= {
        "Domain": {"oneOf": [{"$ref": f"#/$defs/{kind}"} for kind in KINDS]},
        "Space": _space(),
        **{kind: _domain(kind) for kind in KINDS},
    }
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def _space() -> dict[str, Any]:
    return {
        "type": "object",
        "minProperties": 1,
        "propertyNames": {"pattern": r"^[^.]+$", "not": {"enum": list(KINDS)}},
        "additionalProperties": {
            "anyOf": [
                {"$ref": "#/$defs/Domain"},
                {"$ref": "#/$defs/Space"},
                {"type": "string", "pattern": "^=", "description": "Computed: = 0.1 * max_steps"},
            ]
        },
    }


def _domain(kind: str) -> dict[str, Any]:
    if (name := LISTS.get(kind)) is None:
        forms = _numeric(kind)
    else:
        values = {"type": "array", "minItems": 1, "uniqueItems": True}
        forms = [values, _keywords({name: values}, [name])]
    if kind in ("choice", "grid_search"):
        forms.append(_OPTIONS)
    return {
        "type": "object",
        "description": _MEANING[kind],
        "properties": {kind: {"anyOf": forms}, **({} if kind == "grid_search" else _PRIOR)},
        "required": [kind],
        "additionalProperties": False,
    }


def _numeric(kind: str) -> list[dict[str, Any]]:
    number: dict[str, Any] = {"type": "integer" if kind.endswith("randint") else "number"}
    rules = {
        "lower": number | ({"exclusiveMinimum": 0} if "log" in kind else {}),
        "upper": number,
        "q": number | {"exclusiveMinimum": 1 if number["type"] == "integer" else 0},
        "base": {"type": "number", "exclusiveMinimum": 1},
        "mean": number,
        "sd": number | {"exclusiveMinimum": 0},
    }
    names = arguments(kind)
    required = [name for name in names if name not in optional_arguments(kind)]
    items = {"type": "array", "prefixItems": [rules[name] for name in names], "items": False}
    positional = items | {"minItems": len(required), "maxItems": len(names)}
    return [positional, _keywords({name: rules[name] for name in names}, required)]


def _keywords(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


_PRIOR = {"prior": {"description": "A value that is believed to be good: tried first."}}
_WIDTH = 110


def compact(schema: dict[str, Any]) -> dict[str, Any]:
    """The same rules, each of them once: a key that an earlier section has too refers to it."""
    found: dict[str, Any] = _compact(schema)
    known: dict[str, str] = {}
    for name, section in found["$defs"].items():
        for key, field in section.get("properties", {}).items():
            place = f"#/$defs/{name}/properties/{key}"
            first = known.setdefault(json.dumps(field), place)
            if first != place and len(json.dumps(field)) > _WIDTH:
                section["properties"][key] = {"$ref": first}
    return found


def _compact(node: Any) -> Any:
    """Without titles, which pydantic makes of the keys, without empty defaults, and without the
    type of listed values."""
    if isinstance(node, list):
        return [_compact(part) for part in node]
    if not isinstance(node, dict):
        return node
    is_listed = "enum" in node or "const" in node
    return {
        key: _compact(value)
        for key, value in node.items()
        if not (
            (key == "title" and isinstance(value, str))
            or (key == "type" and is_listed)
            or (key, value) == ("default", None)
        )
    }


def to_text(node: Any, indent: int = 0) -> str:
    """JSON in which whatever fits on a line is on one."""
    line = json.dumps(node, ensure_ascii=False)
    if len(line) + indent <= _WIDTH or not isinstance(node, dict | list):
        return line
    if isinstance(node, list):
        parts = [to_text(part, indent + 2) for part in node]
    else:
        parts = [f'"{key}": {to_text(value, indent + 2)}' for key, value in node.items()]
    inner = "\n" + " " * (indent + 2)
    return line[0] + inner + f",{inner}".join(parts) + "\n" + " " * indent + line[-1]
