"""Parses the `space` section, nested mappings whose leaves are domains, and checks `fixed`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError, ValidationInfo

from search_spaces.domains.conditional import (
    ComputedValue,
    ConditionalChoice,
    Constant,
    is_conditional_choice,
    is_formula,
    parameters,
)
from search_spaces.domains.domain import (
    KINDS,
    PRIOR,
    Domain,
    arguments,
    holds_arguments,
    is_domain_form,
    kind_of,
)
from search_spaces.domains.field_errors import FieldErrors
from search_spaces.domains.grid import MAX_POINTS, grid_size
from search_spaces.errors import suggest
from search_spaces.expressions import parse
from search_spaces.limits import check_time, limit
from search_spaces.nested import KeyPath, dotted, flattened, show, walk

_ARGUMENTS = {name for kind in KINDS for name in arguments(kind)}
MAX_PARAMETERS = 1000
"""A larger space is refused."""
_EXPECTED = "a domain is expected, like {uniform: [0, 1]}"


def parse_space(raw: object) -> dict[str, Any]:
    """Parse the `space` section.

    Returns:
        A nested mapping whose leaves are `Domain`, `ConditionalChoice` or `ComputedValue`.

    Raises:
        ValidationError: every mistake in it, each at its path.
    """
    errors = FieldErrors()
    tree: dict[str, Any] = {}
    if not isinstance(raw, Mapping) or not raw:
        errors.add((), f"needs at least one parameter with a domain, got {show(raw)}")
    elif is_domain_form(raw):
        kind = kind_of(raw)
        errors.add((), f"{kind} is a domain and needs a parameter's name: lr: {{{kind}: …}}")
    else:
        tree = _Parser(errors).group(raw, ())
    if not errors:
        _check_size(tree, errors)
    if not errors:
        _check_names(tree, errors)
    errors.raise_if_any("space")
    return tree


class _Parser:
    """Builds a tree and records the mistakes in it.

    Args:
        errors: of the whole space.
        in_option: whether plain values are allowed beside domains, as inside an option.
    """

    def __init__(self, errors: FieldErrors, *, in_option: bool = False) -> None:
        self.errors, self.in_option = errors, in_option

    def group(self, raw: Mapping[str, Any], path: KeyPath) -> dict[str, Any]:
        return {key: self.node(value, (*path, key)) for key, value in raw.items()}

    def node(self, raw: object, path: KeyPath) -> Any:
        if isinstance(raw, (Domain, ConditionalChoice, ComputedValue, Constant)):
            return raw
        text = name_error(path[-1])
        try:
            if text is None and is_formula(raw):
                parse(str(raw)[1:])
                return ComputedValue(text=str(raw))
            if text is None and self.in_option and not _holds_parameters(raw):
                return Constant(value=raw)
            text = text or _node_fault(raw)
            if text is None and isinstance(raw, Mapping):
                return self.mapping(raw, path)
        except ValidationError as e:
            text = str(e.errors()[0]["ctx"]["error"])
        except ValueError as e:
            text = str(e)
        self.errors.add(path, str(text), raw)
        return None

    def mapping(self, raw: Mapping[str, Any], path: KeyPath) -> Any:
        if is_conditional_choice(raw):
            return self.branches(raw, path)
        return Domain.model_validate(raw) if is_domain_form(raw) else self.group(raw, path)

    def branches(self, raw: Mapping[str, Any], path: KeyPath) -> ConditionalChoice:
        kind = str(kind_of(raw))
        options = raw[kind]
        if PRIOR in raw:
            raise ValueError(f"{kind} between options takes no {PRIOR}; their parameters take one")
        inner = _Parser(self.errors, in_option=True)
        if isinstance(options, Mapping):
            bad = [v for v in options.values() if not (v is None or isinstance(v, Mapping))]
            if bad:
                raise ValueError(f"an option holds a mapping of parameters, got {show(bad[0])}")
            trees = {k: inner.group(v or {}, (*path, kind, k)) for k, v in options.items()}
            return ConditionalChoice(
                kind=kind, key=None, labels=tuple(trees), options=tuple(trees.values())
            )
        key = _identifying_key(kind, options)
        rest = [{k: v for k, v in option.items() if k != key} for option in options]
        return ConditionalChoice(
            kind=kind,
            key=key,
            labels=tuple(option[key] for option in options),
            options=tuple(inner.group(o, (*path, kind, i)) for i, o in enumerate(rest)),
        )


def _identifying_key(kind: str, options: list[Any]) -> str:
    """The first key whose plain values identify the options of a conditional choice."""
    for option in options:
        if not isinstance(option, Mapping):
            raise ValueError(
                f"{kind} with options that hold domains needs a mapping for each, "
                f"got {show(option)}; write {{name: {option}}}"
            )
    for key in options[0]:
        values = [option.get(key) for option in options]
        plain = all(isinstance(v, (str, int, float)) and not is_formula(v) for v in values)
        if plain and not any(v in values[:i] for i, v in enumerate(values)):
            return str(key)
    raise ValueError(
        f"{kind} with options that hold domains needs a key whose values tell them apart, "
        "like {name: sgd, momentum: {uniform: [0, 1]}}"
    )


def _holds_parameters(raw: object) -> bool:
    """Whether a mapping in an option is, or contains, a domain or a formula."""
    parts = [part for _, part in walk(raw)] if isinstance(raw, Mapping) else []
    return any(is_domain_form(p) or is_formula(p) or _is_near_domain(p) for p in parts)


def _is_near_domain(raw: object) -> bool:
    if not isinstance(raw, Mapping) or len(raw) != 1:
        return False
    name, value = next(iter(raw.items()))
    return isinstance(value, (list, Mapping)) and "did you mean" in suggest(name, KINDS)


def name_error(key: object) -> str | None:
    """The mistake in a parameter's name; None for a valid one."""
    if not isinstance(key, str) or not key or "." in key:
        group, _, name = str(key).partition(".")
        form = f": {group}: {{{name}: …}}" if group and name else ""
        return (
            f"a parameter's name is text without a dot, got {show(key)}; nest a group instead{form}"
        )
    return None


def _node_fault(raw: object) -> str | None:
    if not isinstance(raw, Mapping):
        return f"{_EXPECTED}, got {show(raw)}; a constant belongs under fixed:"
    if not raw:
        return f"{_EXPECTED}, got {{}}"
    if not is_domain_form(raw) and (kinds := [key for key in raw if key in KINDS]):
        return f"{kinds[0]} takes only {PRIOR} beside it, got {', '.join(map(str, raw))}"
    if _misspelt(raw):
        name = next(iter(raw))
        if name == "sample_from":  # Ray Tune's, of a Python function
            return "unknown domain 'sample_from'; write a formula in its place: = 0.1 * max_steps"
        return f"unknown domain {show(name)}{suggest(name, KINDS)}"
    return None


def _misspelt(raw: Mapping[str, Any]) -> bool:
    """Whether it looks like a domain with a wrong name, not like a group of parameters."""
    name, value = next(iter(raw.items()))
    if len(raw) > 1 or name in KINDS:
        return False
    if isinstance(value, Mapping):
        leaves = not any(isinstance(item, Mapping) for item in value.values())
        return bool(value) and leaves and value.keys() <= _ARGUMENTS
    if name == "sample_from":
        return True
    return isinstance(value, list) or "did you mean" in suggest(name, KINDS)


def _check_size(tree: Mapping[str, Any], errors: FieldErrors) -> None:
    if (count := sum(1 for _ in parameters(tree))) > limit(MAX_PARAMETERS):
        errors.add((), f"a space has at most {MAX_PARAMETERS} parameters, got {count}")
    elif (points := grid_size(tree)) > limit(MAX_POINTS, 10 * MAX_POINTS):
        errors.add((), f"its grids have {points} points, more than {MAX_POINTS}; list fewer values")


def _check_names(tree: Mapping[str, Any], errors: FieldErrors) -> None:
    """Refuse a name that two active leaves could share, and grids that are not always active."""
    grids = {p.name for p in parameters(tree) if _is_grid(p.leaf)}
    seen: dict[str, list[dict[str, Any]]] = {}
    for leaf in parameters(tree):
        check_time()
        when = dict(leaf.when)
        for other, conditions in seen.items():
            if not (f"{leaf.name}.".startswith(f"{other}.") or other.startswith(f"{leaf.name}.")):
                continue
            if not all(any(when.get(k, v) != v for k, v in c.items()) for c in conditions):
                errors.add(leaf.path, _named_twice(leaf.name, other))
        seen.setdefault(leaf.name, []).append(when)
        if _is_grid(leaf.leaf) and not when.keys() <= grids:
            chooser = next(name for name in when if name not in grids)
            errors.add(
                leaf.path, f"grid_search in an option of a choice; make {chooser} a grid_search"
            )


def _named_twice(name: str, other: str) -> str:
    if name != other:
        return f"{name} cannot be a parameter, because {other} is one"
    return (
        f"{name} is defined twice; write the options as a list, like {{name: sgd, …}}, "
        "so that each has names of its own"
    )


def _is_grid(leaf: object) -> bool:
    return isinstance(leaf, Domain) and leaf.kind == "grid_search"


def check_fixed(fixed: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
    """Refuse domains under `fixed`, names with a dot, and parameters that are searched too.

    Deeper mappings may be data of the trainable; their keys are not checked.

    Raises:
        ValidationError: every mistake in it, each at its path.
    """
    errors = FieldErrors()
    searched = {leaf.name for leaf in parameters(info.data.get("space", {}))}
    # a plain value cannot stand where the space has a group of parameters
    taken = searched | {name[:end] for name in searched for end, c in enumerate(name) if c == "."}
    for path, value in walk(fixed):
        if holds_arguments(value):
            errors.add(path, "a domain belongs under space:", value)
        elif len(path) == 1 and (fault := name_error(path[0])):
            errors.add(path, fault, value)
        elif path and dotted(path) in (searched if isinstance(value, Mapping) else taken):
            errors.add(path, "is in the space too; a parameter is either searched or fixed")
        elif is_formula(value):
            _check_formula(path, str(value), errors)
    errors.raise_if_any("fixed")
    return fixed


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
