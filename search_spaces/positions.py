"""Where a value came from, so that an error about it can say file and line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from search_spaces.nested import KeyPath, dotted


@dataclass(frozen=True)
class Problem:
    """One finished line about one mistake, and its place among the others."""

    order: tuple[int, int]
    line: str


@dataclass(frozen=True)
class Source:
    """The lines of a sweep file's keys, and the overrides laid over them.

    Attributes:
        name: of the file, as messages show it.
        lines: key path to line number, counted from 1; the root is the empty path.
        overrides: key path to the `--set …` that gave it its value.
    """

    name: str
    lines: Mapping[KeyPath, int] = field(default_factory=dict)
    overrides: Mapping[KeyPath, str] = field(default_factory=dict)

    def where(self, path: KeyPath) -> str:
        """`llm.yaml:12`, or `--set a.b=c` where an override set it.

        A path that the file does not hold is where its nearest parent is.
        """
        path = self._nearest(path)
        return self.overrides.get(path) or f"{self.name}:{self.lines.get(path, 1)}"

    def problem(self, path: KeyPath, text: str, line: int | None = None) -> Problem:
        """A problem with the value at `path`; `line` when the path alone does not tell it."""
        near = self._nearest(path)
        key = f"{dotted(path)}: " if path else ""
        if line is None and near in self.overrides:
            order = (1, list(self.overrides).index(near))
        else:
            order = (0, line or self.lines.get(near, 1))
        where = self.where(path) if line is None else f"{self.name}:{line}"
        return Problem(order, f"{where}: {key}{text}")

    def with_override(self, path: KeyPath, text: str) -> Source:
        """The same source, after `text` set the value at `path`."""
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
