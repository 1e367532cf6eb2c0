"""The `space` and `fixed` trees: nested mappings whose leaves are domains, and plain values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

from search_spaces.domains import KINDS, LISTS, Domain, is_domain_form
from search_spaces.errors import suggest
from search_spaces.plain import KeyPath, show, walk

_ARGUMENTS = {"lower", "upper", "q", "base", *LISTS.values()}
_EXPECTED = "a domain is expected, like {uniform: [0, 1]}"


class Problems:
    """Mistakes found in a tree; pydantic reports each at its own path."""

    def __init__(self) -> None:
        self._found: list[InitErrorDetails] = []

    def add(self, path: KeyPath, text: str, value: object = None) -> None:
        """Note a mistake at a path below the field."""
        error = PydanticCustomError("plain", "{text}", {"text": text})
        self._found.append(InitErrorDetails(type=error, loc=path, input=value))

    def raise_if_any(self, title: str) -> None:
        """End the validation of the field when anything was noted."""
        if self._found:
            raise ValidationError.from_exception_data(title, self._found)


def parse_space(raw: object) -> dict[str, Any]:
    """The search space as a nested mapping with `Domain` leaves.

    Raises:
        ValidationError: every mistake in it, each at its path.
    """
    problems = Problems()
    tree: dict[str, Any] = {}
    if not isinstance(raw, Mapping) or not raw:
        problems.add((), f"needs at least one parameter with a domain, got {show(raw)}")
    elif is_domain_form(raw):
        kind = next(iter(raw))
        problems.add((), f"{kind} is a domain and needs a parameter's name: lr: {{{kind}: …}}")
    else:
        tree = _group(raw, (), problems)
    problems.raise_if_any("space")
    return tree


def _group(raw: Mapping[str, Any], path: KeyPath, problems: Problems) -> dict[str, Any]:
    return {key: _node(value, (*path, key), problems) for key, value in raw.items()}


def _node(raw: object, path: KeyPath, problems: Problems) -> Any:
    if isinstance(raw, Domain):
        return raw
    text = _key_fault(path[-1]) or _node_fault(raw)
    if text is None and isinstance(raw, Mapping):
        if not is_domain_form(raw):
            return _group(raw, path, problems)
        try:
            return Domain.model_validate(raw)
        except ValidationError as e:
            text = str(e.errors()[0]["ctx"]["error"])
    problems.add(path, str(text), raw)
    return None


def _key_fault(key: object) -> str | None:
    if not isinstance(key, str) or not key or "." in key:
        return f"a parameter's name is text without a dot, got {show(key)}; nest a group instead"
    return None


def _node_fault(raw: object) -> str | None:
    if not isinstance(raw, Mapping):
        return f"{_EXPECTED}, got {show(raw)}; a constant belongs under fixed:"
    if not raw:
        return f"{_EXPECTED}, got {{}}"
    if len(raw) > 1 and (kinds := [key for key in raw if key in KINDS]):
        return f"{kinds[0]} must stand alone, got {', '.join(map(str, raw))}"
    if _misspelt(raw):
        name = next(iter(raw))
        return f"unknown domain {show(name)}{suggest(name, KINDS)}"
    return None


def _misspelt(raw: Mapping[str, Any]) -> bool:
    """Whether it looks like a domain under a wrong name, rather than a group of parameters."""
    name, value = next(iter(raw.items()))
    if len(raw) > 1 or name in KINDS:
        return False
    if isinstance(value, Mapping):
        leaves = not any(isinstance(item, Mapping) for item in value.values())
        return bool(value) and leaves and value.keys() <= _ARGUMENTS
    return isinstance(value, list) or "did you mean" in suggest(name, KINDS)


def check_fixed(fixed: Mapping[str, Any], space: Mapping[str, Any]) -> None:
    """Refuse domains under `fixed`, names with a dot, and parameters that are searched too.

    Mappings deeper down may be the trainable's own data, whose keys are its own affair.

    Raises:
        ValidationError: every mistake in it, each at its path.
    """
    problems = Problems()
    for path, value in walk(fixed):
        if is_domain_form(value) and isinstance(next(iter(value.values())), (list, dict)):
            problems.add(path, "a domain belongs under space:", value)
        elif len(path) == 1 and (fault := _key_fault(path[0])):
            problems.add(path, fault, value)
    for path in _shared(fixed, space, ()):
        problems.add(path, "is in the space too; a parameter is either searched or fixed")
    problems.raise_if_any("fixed")


def _shared(fixed: Mapping[str, Any], space: Mapping[str, Any], path: KeyPath) -> Iterator[KeyPath]:
    for key in fixed:
        if key not in space:
            continue
        ours, theirs = fixed[key], space[key]
        if isinstance(ours, Mapping) and isinstance(theirs, Mapping):
            yield from _shared(ours, theirs, (*path, key))
        else:
            yield (*path, key)


def flatten(space: Mapping[str, Any], prefix: str = "") -> dict[str, Domain]:
    """Dotted name to domain, in file order."""
    flat: dict[str, Domain] = {}
    for key, node in space.items():
        name = f"{prefix}{key}"
        flat |= {name: node} if isinstance(node, Domain) else flatten(node, f"{name}.")
    return flat
