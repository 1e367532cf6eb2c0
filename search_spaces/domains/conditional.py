"""The parts of a space that depend on each other: options with parameters of their own, constants
that come with an option, and values that are computed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeGuard

from pydantic import BaseModel, ConfigDict, model_serializer

from search_spaces.domains.domain import LISTS, Domain, is_domain_form
from search_spaces.expressions import Expression, parse
from search_spaces.nested import KeyPath, walk


class _Node(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Constant(_Node):
    """A plain value that an option of a choice brings along."""

    value: Any

    @model_serializer
    def dump(self) -> Any:
        """The value."""
        return self.value


class ComputedValue(_Node):
    """A value that is computed from others: `= 0.1 * max_steps`."""

    text: str

    @cached_property
    def expression(self) -> Expression:
        """The formula behind the `=`."""
        return parse(self.text.removeprefix("="))

    @model_serializer
    def dump(self) -> str:
        """The text, with its `=`."""
        return self.text


def is_formula(value: object) -> bool:
    """Whether a value is text that is to be computed: it begins with `=`."""
    return isinstance(value, str) and value.startswith("=")


class ConditionalChoice(_Node):
    """A choice whose options have parameters of their own.

    Attributes:
        kind: `choice` or `grid_search`.
        key: of a list of mappings, the key whose value tells the options apart; None where the
            options were written as a mapping from the chosen value to what comes with it.
        labels: the values that tell the options apart.
        options: for each label, the tree of what is active with it.
    """

    kind: Literal["choice", "grid_search"]
    key: str | None
    labels: tuple[Any, ...]
    options: tuple[dict[str, Any], ...]

    @cached_property
    def selector(self) -> Domain:
        """The parameter that chooses."""
        return Domain.model_validate({self.kind: list(self.labels)})

    def names(self, name: str) -> tuple[str, str]:
        """Of a node called `name`: the selector's name, and the prefix of what an option holds."""
        if self.key is None:
            return name, name.rpartition(".")[0] + "." if "." in name else ""
        return f"{name}.{self.key}", f"{name}."

    def option(self, label: object) -> dict[str, Any]:
        """What is active with a label; nothing for one that is none."""
        return self.options[self.labels.index(label)] if label in self.labels else {}

    @model_serializer
    def dump(self) -> dict[str, Any]:
        """The YAML form."""
        if self.key is None:
            return {self.kind: dict(zip(self.labels, self.options, strict=True))}
        pairs = zip(self.labels, self.options, strict=True)
        return {self.kind: [{self.key: label} | option for label, option in pairs]}


def is_conditional_choice(raw: object) -> TypeGuard[dict[str, Any]]:
    """Whether plain data is a choice (or grid) whose options hold parameters."""
    if not is_domain_form(raw):
        return False
    (kind, options), *_ = raw.items()
    if kind not in ("choice", "grid_search"):
        return False
    if isinstance(options, Mapping):
        return bool(options) and options.keys() != {LISTS[kind]}
    return isinstance(options, list) and any(
        _holds_domain(option) for option in options if isinstance(option, Mapping)
    )


def _holds_domain(option: Mapping[str, Any]) -> bool:
    return any(
        is_domain_form(part) and isinstance(next(iter(part.values())), (list, dict))
        for _, part in walk(option)
    )


Leaf = Domain | Constant | ComputedValue
Pick = Callable[[str, Domain], Any]
"""Gives a parameter, by its dotted name and domain, its value."""


def walk_active(
    tree: Mapping[str, Any], pick: Pick, prefix: str = ""
) -> Iterator[tuple[str, Leaf, Any]]:
    """Walk the part of a space that the picked values make active, in file order.

    Yields:
        Dotted name, leaf, and its value: what was picked for a domain, a constant's value, None
        for what is still to be computed.
    """
    for key, node in tree.items():
        name = f"{prefix}{key}"
        if isinstance(node, Domain):
            yield name, node, pick(name, node)
        elif isinstance(node, ConditionalChoice):
            selector, inner = node.names(name)
            label = pick(selector, node.selector)
            yield selector, node.selector, label
            yield from walk_active(node.option(label), pick, inner)
        elif isinstance(node, Constant):
            yield name, node, node.value
        elif isinstance(node, ComputedValue):
            yield name, node, None
        else:
            yield from walk_active(node, pick, f"{name}.")


@dataclass(frozen=True)
class Parameter:
    """A leaf of the space, active or not.

    Attributes:
        name: dotted.
        leaf: domain, constant or formula.
        path: of keys and indices below `space`, for messages.
        when: the selectors and labels under which it is active, outermost first.
    """

    name: str
    leaf: Leaf
    path: KeyPath
    when: tuple[tuple[str, Any], ...] = ()


def parameters(
    tree: Mapping[str, Any],
    prefix: str = "",
    path: KeyPath = (),
    when: tuple[tuple[str, Any], ...] = (),
) -> Iterator[Parameter]:
    """Every leaf of a space with the condition under which it is active, in file order."""
    for key, node in tree.items():
        name, here = f"{prefix}{key}", (*path, key)
        if isinstance(node, ConditionalChoice):
            selector, inner = node.names(name)
            yield Parameter(selector, node.selector, here, when)
            pairs = zip(node.labels, node.options, strict=True)
            for i, (label, option) in enumerate(pairs):
                below = (*here, node.kind, label if node.key is None else i)
                yield from parameters(option, inner, below, (*when, (selector, label)))
        elif isinstance(node, (Domain, Constant, ComputedValue)):
            yield Parameter(name, node, here, when)
        else:
            yield from parameters(node, f"{name}.", here, when)


def domains_by_name(space: Mapping[str, Any]) -> dict[str, Domain]:
    """Dotted name to domain, in file order; of a name that several options have, the first."""
    flat: dict[str, Domain] = {}
    for leaf in parameters(space):
        if isinstance(leaf.leaf, Domain):
            flat.setdefault(leaf.name, leaf.leaf)
    return flat
