"""Turns pydantic's errors into messages: position, key, rule, value, nearest valid name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from search_spaces.errors import nearest, suggest
from search_spaces.nested import KeyPath, show
from search_spaces.positions import Problem, Source
from search_spaces.spec.base import Section
from search_spaces.spec.sweep import SweepSpec

MAX_PROBLEMS = 100
"""Mistakes that are explained at once; suggesting a name takes time."""
_Schema = Mapping[str, Any]


def explain(
    error: ValidationError, source: Source, model: type[Section] = SweepSpec
) -> Iterator[tuple[KeyPath, Problem]]:
    """Yield one problem for each path at which pydantic found an error of a model."""
    schema = model.model_json_schema()
    errors = islice(error.errors(include_url=False), MAX_PROBLEMS)
    found = [(_path(e, schema), e) for e in errors]
    misspelt = (p for p, e in found if e["type"] == "extra_forbidden")
    meant = [(*p[:-1], nearest(p[-1], _keys(p[:-1], schema))) for p in misspelt]
    seen: set[KeyPath] = set()
    for path, details in found:
        follows = any(path[: len(key)] == key for key in meant)  # what a misspelt key would set
        if path not in seen and not follows:
            seen.add(path)
            yield path, source.problem(path, _text(details, path, schema))


def meaning(path: KeyPath) -> str:
    """What a key of a sweep file stands for: the names that it takes, or its description."""
    if path[0] == "space":
        return "a domain, like {uniform: [0, 1]}"
    schema = SweepSpec.model_json_schema()
    while (field := _at(path, schema)) is None and len(path) > 1:
        path = path[:-1]  # an item of a list
    field = field or {}
    names = _names_of(field)
    return " or ".join(names) if names else str(field.get("description", "see tune schema"))


def _keys(path: KeyPath, schema: _Schema) -> Mapping[str, Any]:
    """The keys of a section."""
    keys: Mapping[str, Any] = (_at(path, schema) or {}).get("properties", {})
    return keys


def _path(details: ErrorDetails, schema: _Schema) -> KeyPath:
    """The path in the file, without the union branches that pydantic adds to it."""
    loc = details["loc"]
    if "path" in details.get("ctx", {}):  # found while another key was checked
        return tuple(details["ctx"]["path"])
    if details["type"] in ("plain", "extra_forbidden"):
        return loc
    for length in range(1, len(loc) + 1):
        if _at(loc[:length], schema) is None:
            return loc[: length - 1]
    return loc


def _text(details: ErrorDetails, path: KeyPath, schema: _Schema) -> str:
    kind = details["type"]
    if kind == "plain":
        return details["msg"]
    if kind == "value_error":
        return str(details["ctx"]["error"])
    if kind == "extra_forbidden":
        return f"unknown key{suggest(path[-1], _keys(path[:-1], schema))}"
    field = _at(path, schema) or {}
    if kind == "missing":
        return f"is required: {field.get('description', 'see tune schema')}"
    value = details["input"]
    names = _names_of(field)
    near = suggest(value, names) if isinstance(value, str) and names else ""
    near = near if "did you mean" in near else ""
    return f"must be {rule(field, schema)}, got {show(value)}{near}"


def _names_of(field: _Schema) -> list[str]:
    """The valid names of a field that takes one of several."""
    found: list[str] = list(field.get("enum", []))
    return found or [name for branch in field.get("anyOf", []) for name in _names_of(branch)]


def _at(path: KeyPath, schema: _Schema) -> _Schema | None:
    node = schema
    for key in path:
        node = _resolve(node, schema).get("properties", {}).get(key)
        if node is None:
            return None
    return _resolve(node, schema)


def _resolve(node: _Schema, schema: _Schema) -> _Schema:
    ref = node.get("$ref")
    return schema["$defs"][ref.rsplit("/", 1)[1]] if ref else node


_BOUNDS = {
    "minimum": ">= {}",
    "exclusiveMinimum": "> {}",
    "maximum": "and <= {}",
    "exclusiveMaximum": "and < {}",
    "maxLength": "of at most {} characters",
    "pattern": "that matches {}",
}
_NAMES = {
    "integer": "a whole number",
    "number": "a number",
    "string": "text",
    "object": "a mapping of keys",
    "array": "a list",
    "boolean": "true or false",
}


def rule(field: _Schema, schema: _Schema) -> str:
    """What a field accepts, in words, from its JSON Schema."""
    field = _resolve(field, schema)
    if "anyOf" in field:
        branches = [rule(branch, schema) for branch in field["anyOf"]]
        return " or ".join(text for text in branches if text)
    if "const" in field:
        return str(field["const"])
    if "enum" in field:
        return " or ".join(v if isinstance(v, str) else show(v) for v in field["enum"])
    words = [_NAMES.get(field.get("type", ""), "")]
    words += [text.format(field[key]) for key, text in _BOUNDS.items() if key in field]
    if field.get("minLength") == 1:
        words[0] = "non-empty text"
    return " ".join(words)
