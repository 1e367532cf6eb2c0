"""Plain data, as in a YAML file: how to show, nest, merge and walk it."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from typing import Any

KeyPath = tuple[str | int, ...]
"""Path to a value in the file: keys, and indices inside lists."""


def show(value: object) -> str:
    """A value on one short line, written as in YAML (`null`, `true`, quoted text)."""
    try:
        if isinstance(value, (str, float)):  # nan and inf have no JSON form
            text = repr(value)
        else:
            text = json.dumps(value, default=str, ensure_ascii=False)
    except ValueError:  # Python writes no whole number of more than 4300 digits
        return f"a {type(value).__name__} that is too long to show"
    return text if len(text) <= 60 else text[:57] + "..."


def same(one: object, other: object) -> bool:
    """Whether two values are equal, where NaN equals itself, also within others."""
    if one == other:
        return True
    text = json.dumps(one, sort_keys=True, default=str)
    return "NaN" in text and text == json.dumps(other, sort_keys=True, default=str)


def dotted(path: KeyPath) -> str:
    """`("space", "lr")` as `space.lr`."""
    return ".".join(str(part) for part in path)


def merge(base: Mapping[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    """A deep copy of `base`, updated with `extra` mapping by mapping."""
    merged = copy.deepcopy(dict(base))
    _update(merged, extra)
    return merged


def _update(tree: dict[str, Any], extra: Mapping[str, Any]) -> None:
    for key, value in extra.items():
        old = tree.get(key)
        if isinstance(old, dict) and isinstance(value, Mapping):
            _update(old, value)
        else:
            tree[key] = copy.deepcopy(value)


def group(value: object) -> Mapping[str, Any]:
    """The value, if it is a mapping; else an empty one, as of a file that is refused elsewhere."""
    return value if isinstance(value, Mapping) else {}


def nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    """`{"a.b": 1}` as `{"a": {"b": 1}}`."""
    tree: dict[str, Any] = {}
    for name, value in flat.items():
        *parents, leaf = name.split(".")
        node = tree
        for parent in parents:
            node = node.setdefault(parent, {})
        node[leaf] = value
    return tree


def flattened(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """`{"a": {"b": 1}}` as `{"a.b": 1}`; an empty mapping is a value."""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        parent = isinstance(value, Mapping) and value
        flat |= flattened(value, f"{prefix}{key}.") if parent else {f"{prefix}{key}": value}
    return flat


def walk(value: object, path: KeyPath = ()) -> Iterator[tuple[KeyPath, object]]:
    """Yield every value with its path, parents first, in file order."""
    yield path, value
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from walk(item, (*path, key))
    elif isinstance(value, (list, tuple)):
        for i, item in enumerate(value):
            yield from walk(item, (*path, i))
