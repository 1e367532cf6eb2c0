"""A space: options with parameters of their own, constants that belong to an option, computed
values; and random configurations of it, which need no Optuna sampler.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeGuard

from pydantic import BaseModel, ConfigDict, model_serializer

from search_spaces.domains.domain import LISTS, Domain, holds_arguments, is_domain_form, kind_of
from search_spaces.expressions import Expression, parse
from search_spaces.nested import KeyPath, walk


class _Node(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Constant(_Node):
    """A plain value inside an option of a choice."""

    value: Any

    @model_serializer
    def dump(self) -> Any:
        """The value."""
        return self.value


class ComputedValue(_Node):
    """A value computed from others: `= 0.1 * max_steps`."""

    text: str

    @cached_property
    def expression(self) -> Expression:
        """The formula after the `=`."""
        return parse(self.text.removeprefix("="))

    @model_serializer
    def dump(self) -> str:
        """The text, with its `=`."""
        return self.text


def is_formula(value: object) -> bool:
    """Whether a value is a formula: text that begins with `=`."""
    return isinstance(value, str) and value.startswith("=")


class ConditionalChoice(_Node):
    """A choice whose options have parameters of their own.

    Attributes:
        kind: `choice` or `grid_search`.
        key: where the options are a list of mappings, the key whose value identifies an option;
            None where they are a mapping from the chosen value to its parameters.
        labels: the values that identify the options.
        options: for each label, the tree of parameters that are active with it.
    """

    kind: Literal["choice", "grid_search"]
    key: str | None
    labels: tuple[Any, ...]
    options: tuple[dict[str, Any], ...]

    @cached_property
    def selector(self) -> Domain:
        """The domain of the choice itself."""
        return Domain.model_validate({self.kind: list(self.labels)})

    def names(self, name: str) -> tuple[str, str]:
        """For a node called `name`: the selector's name, and the prefix of its options' names."""
        if self.key is None:
            return name, name.rpartition(".")[0] + "." if "." in name else ""
        return f"{name}.{self.key}", f"{name}."

    def option(self, label: object) -> dict[str, Any]:
        """The tree that is active with a label; empty for an unknown label."""
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
    kind = str(kind_of(raw))
    options = raw[kind]
    if kind not in ("choice", "grid_search"):
        return False
    if isinstance(options, Mapping):
        return bool(options) and options.keys() != {LISTS[kind]}
    return isinstance(options, list) and any(
        holds_arguments(part)
        for option in options
        if isinstance(option, Mapping)
        for _, part in walk(option)
    )


Leaf = Domain | Constant | ComputedValue
Pick = Callable[[str, Domain], Any]
"""Returns a parameter's value, given its dotted name and domain."""


def walk_active(
    tree: Mapping[str, Any], pick: Pick, prefix: str = ""
) -> Iterator[tuple[str, Leaf, Any]]:
    """Walk the parameters that the picked values make active, in file order.

    Yields:
        Dotted name, leaf, and value: the picked one of a domain, a constant's own, None for a
        computed value.
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
        name: dotted name.
        leaf: domain, constant or computed value.
        path: keys and indices below `space`, for messages.
        when: selectors and labels under which it is active, outermost first.
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
    """Yield every leaf of a space with its condition, in file order."""
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
    """Dotted name to domain, in file order; if several options share a name, the first one."""
    flat: dict[str, Domain] = {}
    for leaf in parameters(space):
        if isinstance(leaf.leaf, Domain):
            flat.setdefault(leaf.name, leaf.leaf)
    return flat


def draw(space: Mapping[str, Any], pick: Pick) -> dict[str, Any]:
    """A configuration: dotted name to picked value, of the active parameters."""
    walked = walk_active(space, pick)
    return {name: value for name, leaf, value in walked if isinstance(leaf, Domain)}


def draw_at_random(space: Mapping[str, Any], rng: random.Random) -> dict[str, Any]:
    """A configuration as random search draws it."""
    return draw(space, lambda _, domain: draw_value(domain, rng))


def draw_value(domain: Domain, rng: random.Random) -> Any:
    """One value of a domain."""
    if domain.is_categorical:
        return rng.choice(domain.categories)
    if (normal := domain.normal) is not None:
        value = normal.at(rng.uniform(*normal.quantiles))
        return value if domain.q is None else domain.multiple(round(value / domain.q))
    if domain.q is not None:
        low, high = (round(bound / domain.q) for bound in (domain.lower, domain.high))
        return domain.multiple(_number(low, high, domain.log, whole=True, rng=rng))
    return _number(domain.lower, domain.high, domain.log, whole=domain.integer, rng=rng)


def _number(low: float, high: float, log: bool, *, whole: bool, rng: random.Random) -> Any:
    if whole and not log:
        return rng.randint(int(low), int(high))
    half = 0.5 if whole else 0.0
    if log:
        value = math.exp(rng.uniform(math.log(low - half), math.log(high + half)))
    else:
        value = rng.uniform(low, high)
    value = min(max(value, low), high)
    return round(value) if whole else value
