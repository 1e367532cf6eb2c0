"""File and line of each value, for error messages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from search_spaces.nested import KeyPath, dotted


@dataclass(frozen=True)
class Problem:
    """The message about one mistake, and its sort key among the others."""

    order: tuple[int, int]
    message: str


@dataclass(frozen=True)
class Source:
    """Line numbers of a sweep file's keys, and the overrides applied to them.

    Attributes:
        name: of the file, as messages show it.
        lines: key path to line number, counted from 1; the root is the empty path.
        overrides: key path to the `--set …` that set its value.
    """

    name: str
    lines: Mapping[KeyPath, int] = field(default_factory=dict)
    overrides: Mapping[KeyPath, str] = field(default_factory=dict)

    def where(self, path: KeyPath) -> str:
        """`llm.yaml:12`, or `--set a.b=c` if an override set the value.

        For a path that is not in the file: the position of its nearest parent.
        """
        path = self._nearest(path)
        return self.overrides.get(path) or f"{self.name}:{self.lines.get(path, 1)}"

    def problem(self, path: KeyPath, text: str, line: int | None = None) -> Problem:
        """A problem with the value at `path`; `line` if the path does not determine it."""
        near = self._nearest(path)
        key = f"{dotted(path)}: " if path else ""
        if line is None and near in self.overrides:
            order = (1, list(self.overrides).index(near))
        else:
            order = (0, line or self.lines.get(near, 1))
        where = self.where(path) if line is None else f"{self.name}:{line}"
        return Problem(order, f"{where}: {key}{text}")

    def with_override(self, path: KeyPath, text: str) -> Source:
        """A copy in which the override `text` set the value at `path`."""
        under = len(path)
        lines = {known: line for known, line in self.lines.items() if known[:under] != path}
        kept = {known: old for known, old in self.overrides.items() if known[:under] != path}
        made = [path[:i] for i in range(1, under) if path[:i] not in self.lines]
        parents = {parent: text for parent in made if parent not in kept}
        return replace(self, lines=lines, overrides=kept | parents | {path: text})

    def _nearest(self, path: KeyPath) -> KeyPath:
        while path and path not in self.overrides and path not in self.lines:
            path = path[:-1]
        return path


@dataclass(frozen=True)
class Arguments(Source):
    """The arguments of a Python call in place of a file: messages name the argument."""

    def where(self, path: KeyPath) -> str:
        """`Sweep(budget)`, or `Sweep()` for a mistake of the whole."""
        return f"{self.name}({path[0] if path else ''})"
