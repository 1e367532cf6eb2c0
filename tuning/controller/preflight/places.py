"""The places in a sweep file to which mistakes in a configuration belong."""

from __future__ import annotations

import re
from typing import Any

from search_spaces.domains.conditional import Leaf, parameters
from search_spaces.domains.parser import fixed_formulas
from search_spaces.nested import KeyPath, dotted
from search_spaces.spec.sweep import SweepSpec


def locate(
    spec: SweepSpec, path: tuple[str, ...], params: dict[str, Any]
) -> tuple[KeyPath, Leaf | None]:
    """The place of a hyperparameter in the sweep file, and its leaf of the space or formula."""
    name = dotted(path)
    for leaf in parameters(spec.space):
        if all(params.get(chooser) == label for chooser, label in leaf.when) and (
            f"{name}.".startswith(f"{leaf.name}.") or leaf.name.startswith(f"{name}.")
        ):
            return ("space", *leaf.path), leaf.leaf
    if path:
        return ("fixed", *path), dict(fixed_formulas(spec.fixed)).get(name)
    return code_key(spec), None


def first_named(problem: str, config: dict[str, Any]) -> tuple[str, ...]:
    """The first hyperparameter that a message names."""
    return tuple(word for word in re.findall(r"\w+", problem) if word in config)[:1]


def code_key(spec: SweepSpec) -> KeyPath:
    """The key that names the training code."""
    return ("command",) if spec.command else ("trainable",)
