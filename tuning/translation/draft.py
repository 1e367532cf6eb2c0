"""A sweep file in the making, and its text.

The one rule of a translation: what the other file says is translated, or stands in a comment; what
could not be read is `OPEN`, which no command accepts, and never a default.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeGuard

from search_spaces.domains.conditional import is_formula
from search_spaces.domains.domain import KINDS, is_domain_form
from search_spaces.errors import UserError
from search_spaces.loading.sweep_file import OPEN, sweep_problems
from search_spaces.nested import KeyPath, dotted, show, walk

_PLAIN = re.compile(r"[A-Za-z_][\w./:-]*")
_WORDS = {"true", "false", "null", "yes", "no", "on", "off", "inf", "nan"}
_ORDER = ("report_from", "seed", "points", "select", "scheduler", "search", "budget", "resources")
_REQUIRED = ("metric", "mode")
_MODES = {"minimize": "min", "maximize": "max"}


@dataclass
class Draft:
    """What another program's file says, in the words of a sweep file.

    Attributes:
        source: that file.
        keys: keys of the sweep file other than name, space and fixed.
        space: parameters with their domains, nested.
        fixed: parameters with plain values, nested.
        notes: what could not be translated, and what to look at, a line each.
        target: what was named in the source, as `:function`; empty: all of it.
        option: of `tune init`, to which the source was given.
        remarks: parameters with comments on their lines.
    """

    source: Path
    keys: dict[str, Any] = field(default_factory=dict)
    space: dict[str, Any] = field(default_factory=dict)
    fixed: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    target: str = ""
    option: str = "--like"
    remarks: dict[str, str] = field(default_factory=dict)

    def note(self, line: int | None, text: str) -> None:
        """Say in a comment what could not be translated.

        Args:
            line: of the source, from 1; None if it is not about a line.
        """
        place = self.source.name if line is None else f"{self.source.name}:{line}"
        if (note := f"{place}: {text}") not in self.notes:
            self.notes.append(note)

    def set(self, path: str, value: Any) -> None:
        """Set a key, such as `budget.trials`; None leaves it out."""
        section, _, key = path.partition(".")
        if value is not None and key:
            self.keys.setdefault(section, {})[key] = value
        elif value is not None:
            self.keys[section] = value

    def open(self, line: int | None, text: str, path: str) -> None:
        """Say that a part of the source is not translated, so that a key has to be filled in."""
        self.note(line, f"{text} is not translated; fill in {path}")
        self.set(path, OPEN)

    def set_mode(self, line: int | None, text: str, goal: object) -> None:
        """Set `mode` by a goal, such as `minimize`, which is at a part of the source."""
        if (mode := _MODES.get(str(goal))) is None:
            self.open(line, text, "mode")
        else:
            self.set("mode", mode)

    def add(self, line: int | None, name: str, domain: Any) -> None:
        """Add a parameter, of a dotted name, with a domain or `OPEN`."""
        self._insert(line, self.space, name, domain)

    def fix(self, line: int | None, name: str, value: Any) -> None:
        """Add a parameter, of a dotted name, with a plain value."""
        if any(is_formula(part) for _, part in walk(value)):
            self.note(line, f"{name}: {show(value)} is not translated: it reads as a formula")
            self.add(line, name, OPEN)
        else:
            self._insert(line, self.fixed, name, value)

    def _insert(self, line: int | None, tree: dict[str, Any], name: str, value: Any) -> None:
        *parents, leaf = name.split(".")
        for parent in parents:
            tree = tree.setdefault(parent, {})
            if not isinstance(tree, dict) or is_domain_form(tree):
                break
        if not isinstance(tree, dict) or is_domain_form(tree) or leaf in tree:
            self.note(line, f"{name} is not translated: a group and a parameter have one name")
            self.space[OPEN] = OPEN
        else:
            tree[leaf] = value

    def has(self, name: str) -> bool:
        """Whether it has a parameter of a dotted name."""
        return any(dotted(p) == name for t in (self.space, self.fixed) for p, _ in walk(t) if p)

    def grid_size(self) -> int:
        """The number of combinations of its grids; 1 without any."""
        grids = [part for _, part in walk(self.space) if _is_grid(part)]
        return math.prod(len(part["grid_search"]) for part in grids)

    def is_grid(self) -> bool:
        """Whether every domain is a grid, which is a budget by itself."""
        found = [part for _, part in walk(self.space) if part == OPEN or is_domain_form(part)]
        return all(map(_is_grid, found))

    def text(self) -> str:
        """The sweep file.

        Raises:
            UserError: no parameter of the source has a domain.
        """
        if not self.space:
            said = f" ({self.notes[0]})" if self.notes else ""
            raise UserError(f"{self.source}: no parameter with a domain was found{said}")
        data = self._checked()
        made = f"tune init {self.option} {self.source.name}{self.target}"
        head = [f"# Written by `{made}`. Check it: tune plan FILE"]
        if self.notes:
            head += ["# Please look at:", *(f"#   {_printable(note)}" for note in self.notes)]
        space, fixed = data.pop("space"), data.pop("fixed", {})
        after = {key: data.pop(key) for key in _ORDER if key in data}
        lines = [*head, *_lines(data), "", "space:", *self._parameter_lines(space), ""]
        lines += ["fixed:", *self._parameter_lines(fixed), ""] if fixed else []
        return "\n".join([*lines, *_lines(after), ""])

    def _parameter_lines(self, values: Mapping[str, Any]) -> list[str]:
        said = [self.remarks.get(name, "") for name in values]
        lines = zip(_lines(values, 1), said, strict=True)
        return [f"{line}  # {_printable(remark)}" if remark else line for line, remark in lines]

    def _checked(self) -> dict[str, Any]:
        """The keys of the sweep file; what would be refused is noted and becomes `OPEN`."""
        name = re.sub(r"[^A-Za-z0-9._-]", "-", self.source.stem).lstrip("._-")[:64] or "sweep"
        keys = {**dict.fromkeys(_REQUIRED, OPEN), "scheduler": {"name": "none"}, **self.keys}
        first = [key for key in keys if key not in (*_ORDER, *_REQUIRED)]
        data = {"name": name, **{k: keys[k] for k in (*first, *_REQUIRED)}, "space": self.space}
        data |= {"fixed": self.fixed} if self.fixed else {}
        data |= {key: keys[key] for key in _ORDER if key in keys}
        while wrong := [(p, t) for p, t in sweep_problems(data).items() if _at(data, p) != OPEN]:
            self._give_up(data, *wrong[0])
        return data

    def _give_up(self, data: dict[str, Any], path: KeyPath, text: str) -> None:
        """Replace what the loader refuses by `OPEN`, and note it."""
        where = _replaceable(data, path)
        value = _at(data, where)
        self.note(None, f"{dotted(where)}: {_flow(value)} cannot be written: {text}")
        if where[0] == "fixed":  # where any text is a value
            self.space[OPEN] = OPEN
            del _at(data, where[:-1])[where[-1]]
        elif where == ("space",):
            self.space[OPEN] = OPEN
        else:
            _at(data, where[:-1])[where[-1]] = OPEN


def _is_grid(part: object) -> TypeGuard[Mapping[str, Sequence[Any]]]:
    return isinstance(part, Mapping) and isinstance(part.get("grid_search"), Sequence)


def _at(data: Any, path: KeyPath) -> Any:
    """The value at a path; `OPEN` below such a value, None if there is none."""
    for key in path:
        if data == OPEN:
            return OPEN
        try:
            data = data[key]
        except (KeyError, IndexError, TypeError):
            return None
    return data


def _replaceable(data: Any, path: KeyPath) -> KeyPath:
    """The innermost value at or above a path that `OPEN` can replace: no part of a list."""
    length = 1
    for length in range(1, len(path) + 1):
        value = _at(data, path[:length])
        is_end = not isinstance(value, Mapping) or (path[0] == "space" and is_domain_form(value))
        if is_end or (length < len(path) and path[length] in KINDS):
            break
    return path[:length]


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in " ".join(text.split()))


def _lines(values: Mapping[str, Any], depth: int = 0) -> list[str]:
    return [f"{'  ' * depth}{_flow(name)}: {_flow(value)}" for name, value in values.items()]


def _flow(value: Any) -> str:
    """A value as YAML in one line."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_flow(k)}: {_flow(v)}" for k, v in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_flow, value)) + "]"
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return value if not value.endswith(":") else json.dumps(value)
    if isinstance(value, float) and not math.isfinite(value):
        return ".nan" if math.isnan(value) else ".inf" if value > 0 else "-.inf"
    if isinstance(value, float):
        return re.sub(r"^(-?\d+)e", r"\1.0e", json.dumps(value))
    text = json.dumps(value, ensure_ascii=False)
    return "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in text)
