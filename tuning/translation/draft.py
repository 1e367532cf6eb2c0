"""A sweep file in the making, and its text."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from search_spaces.errors import UserError

_PLAIN = re.compile(r"[A-Za-z_][\w./:-]*")
_WORDS = {"true", "false", "null", "yes", "no", "on", "off", "inf", "nan"}
_TRIALS = 16
_SECTIONS = ("report_from", "scheduler", "search", "budget", "resources")


@dataclass
class Draft:
    """What another program's file says, in the words of a sweep file.

    Attributes:
        source: that file.
        code: `{"trainable": name}` or `{"command": [...]}`.
        space: parameters with their domains, nested.
        fixed: parameters with plain values, nested.
        sections: other sections of the sweep file, by name.
        notes: what could not be translated, and what to look at, a line each.
    """

    source: Path
    code: dict[str, Any] = field(default_factory=dict)
    metric: str = "loss"
    mode: str = "min"
    space: dict[str, Any] = field(default_factory=dict)
    fixed: dict[str, Any] = field(default_factory=dict)
    sections: dict[str, dict[str, Any]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def note(self, line: int | None, text: str) -> None:
        """Say in a comment what could not be translated.

        Args:
            line: of the source, from 1; None if it is not about a line.
        """
        place = self.source.name if line is None else f"{self.source.name}:{line}"
        self.notes.append(f"{place}: {text}")

    def set(self, section: str, **values: Any) -> None:
        """Set keys of a section; None leaves one out."""
        given = {key: value for key, value in values.items() if value is not None}
        if given:
            self.sections.setdefault(section, {}).update(given)

    def text(self) -> str:
        """The sweep file.

        Raises:
            UserError: no parameter of the source has a domain.
        """
        if not self.space:
            said = f" ({self.notes[0]})" if self.notes else ""
            raise UserError(f"{self.source}: no parameter with a domain was found{said}")
        if "budget" not in self.sections and not _is_grid(self.space):
            self.set("budget", trials=_TRIALS)
            self.note(None, f"says no number of trials; {_TRIALS} is a guess")
        name = re.sub(r"[^A-Za-z0-9._-]", "-", self.source.stem).lstrip("._-")[:64] or "sweep"
        parts = [f"# Written by `tune init --like {self.source.name}`. Check it: tune plan FILE"]
        if self.notes:
            parts += ["# Please look at:", *(f"#   {' '.join(n.split())}" for n in self.notes)]
        parts += [f"name: {_flow(name)}", *_lines(self.code)]
        parts += [*_lines({"metric": self.metric, "mode": self.mode}), "", "space:"]
        parts += _lines(self.space, 1)
        if self.fixed:
            parts += ["", "fixed:", *_lines(self.fixed, 1)]
        sections = {"scheduler": {"name": "none"}, **self.sections}
        parts += ["", *_lines({name: sections[name] for name in _SECTIONS if name in sections})]
        return "\n".join([*parts, ""])


def _is_grid(space: Mapping[str, Any]) -> bool:
    """Whether all domains list their points, which is a budget by itself."""
    parts = [part for key, part in space.items() if key != "grid_search"]
    return all(isinstance(part, Mapping) and _is_grid(part) for part in parts)


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
    if isinstance(value, float):
        return re.sub(r"^(-?\d+)e", r"\1.0e", json.dumps(value))
    return json.dumps(value, ensure_ascii=False)
