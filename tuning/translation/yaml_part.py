"""Reads YAML files of other programs, and keeps account of what was read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.scalarbool import ScalarBoolean

from search_spaces.errors import UserError
from search_spaces.nested import KeyPath, dotted

_BOOLEANS = {"yes": True, "on": True, "no": False, "off": False}
"""Of YAML 1.1, by which other programs read."""


@dataclass(frozen=True)
class YamlPart:
    """A value of the file, or the absence of one.

    What is read is remembered, also where an alias or a merge stands for it; `unread` is the rest.

    Attributes:
        raw: as the parser made it; None if there is none.
        path: keys and indices that lead to it.
        line: of its key, from 1; of a merged key that of the mapping.
        place: identifies it, however it is reached.
        seen: places of this file that were read.
    """

    raw: Any
    path: KeyPath = ()
    line: int = 1
    place: tuple[int, str | int] = (0, "")
    seen: set[tuple[int, str | int]] = field(default_factory=set)

    @property
    def name(self) -> str:
        """Its key."""
        return str(self.path[-1])

    def __contains__(self, key: str) -> bool:
        return isinstance(self.raw, Mapping) and key in self.raw

    def part(self, key: str) -> YamlPart:
        """What is under a key; nothing is read yet."""
        return self._child(key, self.raw[key] if key in self else None)

    def parts(self) -> list[YamlPart]:
        """The values of a mapping, or the items of a list; none of anything else."""
        if isinstance(self.raw, Mapping):
            return [self._child(key, value) for key, value in self.raw.items()]
        items = self.raw if isinstance(self.raw, list) else []
        return [self._child(i, value) for i, value in enumerate(items)]

    def _child(self, key: str | int, raw: Any) -> YamlPart:
        lines = getattr(getattr(self.raw, "lc", None), "data", None) or {}
        line = lines[key][0] + 1 if key in lines else self.line
        return YamlPart(raw, (*self.path, key), line, (id(self.raw), key), self.seen)

    def get(self, key: str, *kinds: type) -> Any:
        """The plain value of a key; None, and not read, if it is not of these types."""
        found = self.part(key)
        value = _plain(found.raw)
        is_kind = type(value) in kinds
        return found.read() if is_kind else None

    def number(self, key: str) -> int | float | None:
        """A number, which may be written as text; None, and not read, if it is none."""
        found = as_number(_plain(self.part(key).raw))
        return None if isinstance(found, str) or self.get(key, int, float, str) is None else found

    def read(self) -> Any:
        """The whole value as plain data."""
        self.seen.add(self.place)
        return _plain(self.raw)

    def unread(self) -> Iterator[YamlPart]:
        """The parts in which nothing was read."""
        if not self.is_touched():
            yield self
        elif self.place not in self.seen:
            for part in self.parts():
                yield from part.unread()

    def is_touched(self) -> bool:
        """Whether something in it was read."""
        return self.place in self.seen or any(part.is_touched() for part in self.parts())

    def __str__(self) -> str:
        return f"{dotted(self.path)}: {_plain(self.raw)}"


def as_number(value: Any) -> Any:
    """A number that is given as text; the value itself if it is none."""
    for kind in (int, float) if isinstance(value, str) else ():
        try:
            return kind(value)
        except ValueError:
            continue
    return value


def read_file(path: Path) -> YamlPart:
    """The content of a file.

    Raises:
        UserError: it is not YAML, or not a mapping.
    """
    yaml = YAML(typ="rt", pure=True)
    yaml.preserve_quotes = True
    try:
        data = yaml.load(path.read_text(encoding="utf-8-sig"))
    except (YAMLError, ValueError) as e:
        raise UserError(f"{path}: not valid YAML: {' '.join(str(e).split())[:200]}") from None
    if not isinstance(data, Mapping):
        raise UserError(f"{path}: not a mapping of keys")
    return YamlPart(data)


def _plain(value: Any) -> Any:
    """Without the parser's own types."""
    if isinstance(value, Mapping):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_plain(part) for part in value]
    if value is None or isinstance(value, (bool, ScalarBoolean)):
        return None if value is None else bool(value)
    if type(value) is str and value.lower() in _BOOLEANS:  # without quotes
        return _BOOLEANS[value.lower()]
    kind = next((kind for kind in (int, float) if isinstance(value, kind)), str)
    return kind(value)
