"""What pydantic found wrong with a configuration, said in the words of who wrote it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from search_spaces.errors import suggest
from search_spaces.nested import show

_RULES: dict[str, str] = {
    "int": "must be a whole number",
    "float": "must be a number",
    "bool": "must be true or false",
    "string": "must be text",
    "list": "must be a list",
    "model": "must be a mapping of names to values",
    "dict": "must be a mapping of names to values",
    "finite": "must be a finite number",
}
_BOUNDS: dict[str, Callable[[dict[str, Any]], str]] = {
    "greater_than": lambda c: f"must be > {c['gt']}",
    "greater_than_equal": lambda c: f"must be >= {c['ge']}",
    "less_than": lambda c: f"must be < {c['lt']}",
    "less_than_equal": lambda c: f"must be <= {c['le']}",
    "literal_error": lambda c: f"must be one of {str(c['expected']).replace(chr(39), '')}",
}


def explain(error: ErrorDetails, model: type[BaseModel]) -> tuple[tuple[str, ...], str]:
    """One pydantic error of a model: the path of names to the value, and the problem."""
    path = tuple(str(step) for step in error["loc"])
    kind, context = error["type"], error.get("ctx", {})
    if kind == "extra_forbidden":
        names = _owner(path, model).model_fields
        return path, f"unknown hyperparameter '{path[-1]}'{suggest(path[-1], names)}"
    if kind == "missing":
        return path, "is required"
    if kind == "value_error":
        return path, str(context["error"])
    rule = _BOUNDS[kind](context) if kind in _BOUNDS else _RULES.get(kind.split("_")[0])
    return path, f"{rule or error['msg']}, got {show(error['input'])}"


def _owner(path: tuple[str, ...], model: type[BaseModel]) -> type[BaseModel]:
    """The nested model in which the last name of a path stands."""
    for name in path[:-1]:
        field = model.model_fields.get(name)
        if field is None or not isinstance(field.annotation, type):
            return model
        if issubclass(field.annotation, BaseModel):
            model = field.annotation
    return model
