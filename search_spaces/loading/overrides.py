"""`--set a.b=c`: replaces one value of the sweep file on the command line, under the same rules."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from search_spaces.domains.conditional import is_conditional_choice, is_formula
from search_spaces.domains.domain import is_domain_form
from search_spaces.errors import UserError, nearest, suggest
from search_spaces.loading.reader import Document, read_value
from search_spaces.nested import dotted, flattened
from search_spaces.positions import Problem
from search_spaces.spec.base import NamedSection, Section, from_name
from search_spaces.spec.sweep import SweepSpec

_ABSENT = object()


@dataclass(frozen=True)
class Override:
    """One parsed `--set`."""

    label: str
    path: tuple[str, ...]
    value: Any


def apply_overrides(document: Document, texts: Iterable[str]) -> Document:
    """A copy of the document with every `--set` applied; the last one for a key counts.

    Mistakes in an override are added to the document's problems.
    """
    document = replace(document, data=copy.deepcopy(document.data), problems=[*document.problems])
    by_key = {text.partition("=")[0].strip(): text for text in texts}
    for index, text in enumerate(by_key.values()):
        try:
            document.source = _apply(document, parse(text))
        except UserError as e:
            document.problems += [Problem((1, index), line) for line in e.problems]
    return document


def parse(text: str, label: str | None = None, form: str = "--set budget.trials=3") -> Override:
    """Split `a.b=c` and read `c` as YAML 1.2.

    Args:
        text: as given.
        label: its name in messages; default: `--set TEXT`.
        form: a valid example for messages.

    Raises:
        UserError: there is no `=`, a key is empty, or the value is not YAML.
    """
    label = label or f"--set {text}"
    key, equals, value = text.partition("=")
    path = tuple(part.strip() for part in key.split("."))
    if not equals or not all(path):
        raise UserError(f"{label}: expected key=value, like {form}")
    return Override(label, path, read_value(value, label))


def _apply(document: Document, override: Override) -> Any:
    section, *rest = override.path
    if section == "space" and rest:
        override = _into_space(document.data, override)
    elif section == "fixed" and rest:
        _refuse_searched(document, override)
    else:
        _refuse_unknown(document, override)
    # a mistake inside a domain is reported at the domain
    at = _domain_above(document.data, override.path) or override.path
    _put(document.data, override)
    return document.source.with_override(at, override.label)


def _into_space(data: dict[str, Any], override: Override) -> Override:
    """A domain replaces the old entry; a constant moves the parameter to `fixed`."""
    twin = ("fixed", *override.path[1:])
    if isinstance(override.value, dict):
        _remove(data, twin)
        return override
    if (pinned := _pin_option(data, override)) is not None:
        return pinned
    if _domain_above(data, override.path[:-1]):
        return override  # inside an option, where plain values are allowed
    old = _get(data, override.path)
    if (is_domain_form(old) or is_formula(old)) and not isinstance(override.value, list):
        _remove(data, override.path)
        if not data["space"]:  # the only searched parameter stays in the space
            return replace(override, value={"choice": [override.value]})
        _remove_from_points(data, override.path[1:])
        return replace(override, path=twin)
    if old is _ABSENT:
        parent = _get(data, override.path[:-1])
        names = suggest(override.path[-1], parent) if isinstance(parent, dict) and parent else ""
        raise UserError(f"{override.label}: {dotted(override.path)}: not in the space{names}")
    return override


def _remove_from_points(data: dict[str, Any], path: tuple[str, ...]) -> None:
    """Leave a parameter that is pinned out of the points to begin with."""
    points = data.get("points")
    for point in points if isinstance(points, list) else ():
        if isinstance(point, dict):
            point.pop(dotted(path), None)
            _remove({"point": point}, ("point", *path))


def _pin_option(data: dict[str, Any], override: Override) -> Override | None:
    """Reduce a conditional choice to the one option that the override names."""
    above = _domain_above(data, override.path)
    raw = _get(data, above) if above else None
    if above is None or not is_conditional_choice(raw):
        return None
    kind, options = next(iter(raw.items()))
    rest = override.path[len(above) :]
    if isinstance(options, dict) and not rest:
        kept: Any = {k: v for k, v in options.items() if k == override.value}
        labels = [str(label) for label in options]
    elif isinstance(options, list) and len(rest) == 1 and rest[0] != kind:
        kept = [option for option in options if option.get(rest[0]) == override.value]
        labels = [str(option.get(rest[0])) for option in options]
    else:
        return None
    if not kept:
        hint = suggest(override.value, labels)
        raise UserError(f"{override.label}: {dotted(above)} has no such option{hint}")
    return replace(override, path=above, value={kind: kept})


def _refuse_searched(document: Document, override: Override) -> None:
    searched = _domain_above(document.data, ("space", *override.path[1:]))
    if searched:
        value = override.label.partition("=")[2]
        raise UserError(
            f"{override.label}: {dotted(searched[1:])} is searched "
            f"({document.source.where(searched)}); use --set {dotted(searched)}={value} to pin it"
        )


def _refuse_unknown(document: Document, override: Override) -> None:
    """Propose the keys that end as an unknown key does: `budget.trials` for `trials`."""
    path, known = override.path, known_keys()
    whole = {*SweepSpec.sections(), "space", "fixed"}
    if path[0] in known or dotted(path[:2]) in known or (len(path) == 1 and path[0] in whole):
        return
    parameters = [(section, *path) for section in ("space", "fixed")]
    meant = [dotted(key) for key in parameters if _get(document.data, key) is not _ABSENT]
    last = {key: key.rpartition(".")[2] for key in (*known, *whole)}
    end: str | None = path[-1]
    if len(path) == 1 and end not in last.values():
        end = nearest(end, last.values())
    if meant := meant or [key for key, part in last.items() if part == end]:
        names = " or ".join(f"'{key}'" for key in meant)
        raise UserError(f"{override.label}: {dotted(path)}: unknown key (did you mean {names}?)")


def _domain_above(data: dict[str, Any], path: tuple[str, ...]) -> tuple[str, ...] | None:
    """The path, or its parent, at which the space has a domain; None if there is none."""
    prefixes = (path[:end] for end in range(2, len(path) + 1))
    found = (prefix for prefix in prefixes if is_domain_form(_get(data, prefix)))
    return next(found, None) if path[0] == "space" else None


def _get(data: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        if not isinstance(data, dict) or key not in data:
            return _ABSENT
        data = data[key]
    return data


def _put(data: dict[str, Any], override: Override) -> None:
    *parents, leaf = override.path
    for depth, parent in enumerate(parents, 1):
        if depth == 1 and issubclass(SweepSpec.sections().get(parent, Section), NamedSection):
            data[parent] = from_name(data.get(parent))
        if data.get(parent) is None:
            data[parent] = {}
        data = data[parent]
        if not isinstance(data, dict):
            name = dotted(override.path[:depth])
            raise UserError(f"{override.label}: {name} holds a value, it has no keys")
    data[leaf] = override.value


def _remove(data: dict[str, Any], path: tuple[str, ...]) -> None:
    """Delete a key, and groups that become empty, but not the section itself."""
    if _get(data, path) is _ABSENT:
        return
    del _get(data, path[:-1])[path[-1]]
    if len(path) > 2 and not _get(data, path[:-1]):
        _remove(data, path[:-1])


def known_keys(spec: SweepSpec | None = None) -> list[str]:
    """Dotted keys of the sections, and of the parameters of a sweep."""
    keys = []
    for name, field in SweepSpec.model_fields.items():
        if section := SweepSpec.sections().get(name):
            keys += [f"{name}.{key}" for key in section.model_fields]
        elif name not in ("space", "fixed"):
            keys.append(field.alias or name)
    if spec is not None:
        keys += [f"space.{name}" for name in spec.domains()]
        keys += [f"fixed.{name}" for name in flattened(spec.fixed)]
    return keys
