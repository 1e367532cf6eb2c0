"""The `fixed` section: parameters with plain or computed values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from search_spaces.domains.conditional import ComputedValue, is_formula, parameters
from search_spaces.domains.domain import holds_arguments
from search_spaces.domains.field_errors import FieldErrors
from search_spaces.domains.parser import name_error
from search_spaces.expressions import parse
from search_spaces.nested import KeyPath, dotted, flattened, show, walk


def check_fixed(fixed: Mapping[str, Any], space: Mapping[str, Any]) -> None:
    """Refuse domains under `fixed`, names with a dot, and parameters that are searched too.

    Deeper mappings may be data of the trainable; their keys are not checked.

    Raises:
        ValidationError: every mistake in it, each at its path.
    """
    errors = FieldErrors()
    searched = {leaf.name for leaf in parameters(space)}
    groups = {name[:end] for name in searched for end, c in enumerate(name) if c == "."}
    for path, value in walk(fixed):
        if holds_arguments(value):
            errors.add(path, "a domain belongs under space:", value)
        elif len(path) == 1 and (fault := name_error(path[0])):
            errors.add(path, fault, value)
        elif path and (dotted(path) in searched or _replaces(path, value, groups)):
            errors.add(path, "is in the space too; a parameter is either searched or fixed")
        elif is_formula(value):
            _check_formula(path, str(value), errors)
    errors.raise_if_any("fixed")


def _replaces(path: KeyPath, value: object, groups: set[str]) -> bool:
    """Whether a plain value is where the space has a group of parameters."""
    return not isinstance(value, Mapping) and dotted(path) in groups


def _check_formula(path: KeyPath, text: str, errors: FieldErrors) -> None:
    if any(isinstance(part, int) for part in path):
        errors.add(path, f"a formula cannot stand in a list, got {show(text)}", text)
        return
    try:
        parse(text[1:])
    except ValueError as e:
        errors.add(path, str(e), text)


def fixed_formulas(fixed: Mapping[str, Any]) -> Iterator[tuple[str, ComputedValue]]:
    """Yield dotted name and formula of every computed value under `fixed`."""
    for name, value in flattened(fixed).items():
        if is_formula(value):
            yield name, ComputedValue(text=str(value))
