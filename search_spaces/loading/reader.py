"""Reads YAML 1.2 into plain data with line numbers. Refuses tags that construct objects, and
duplicate keys, which YAML libraries accept silently."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.composer import Composer, MaxDepthExceededError
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from ruamel.yaml.reader import ReaderError

from search_spaces.checksum import yaml_is_intact
from search_spaces.errors import UserError, suggest
from search_spaces.examples import example_hint
from search_spaces.expressions import MAX_BITS
from search_spaces.files import read_regular
from search_spaces.limits import limit
from search_spaces.nested import KeyPath, show
from search_spaces.positions import Problem, Source

_TAG = "tag:yaml.org,2002:"
_SCALARS = {"str", "int", "float", "bool", "null"}
_TEXT = {"timestamp", "value", "merge"}  # tags of YAML 1.1; plain text in 1.2
_MAX_BYTES, _MAX_VALUES, _MAX_DEPTH = 256 * 1024, 20_000, 50
_WIDE_BYTES, _WIDE_DEPTH, _WIDE_BITS = 16 * 1024**2, 150, 14_000
"""Limits of a sweep file: it is read within two seconds. Aliases count as what they stand
for, and a hundred characters of text as a value. The wide limits are those of
a sweep folder's file.
"""


@dataclass
class Document:
    """A YAML file as plain data, with the problems found so far.

    Attributes:
        data: plain data; None in place of a refused value.
        source: file and lines.
        problems: found so far.
        refused: paths that already have a problem.
    """

    data: Any
    source: Source
    problems: list[Problem] = field(default_factory=list)
    refused: set[KeyPath] = field(default_factory=set)


def read_file(path: Path) -> Document:
    """Read a sweep file.

    Raises:
        UserError: the file is not readable, not valid YAML, or not a mapping.
    """
    name = path.name
    node = _compose(_text(path), name)
    if node is None:
        raise UserError(f"{name}:1: the file is empty; a sweep needs name, trainable, space, …")
    if not isinstance(node, MappingNode):
        raise UserError(f"{name}:{_line(node)}: a sweep is a mapping of keys, like 'name: llm'")
    return _Reader(name).document(node)


def read_value(text: str, label: str) -> Any:
    """Parse the value of a `--set`.

    Args:
        text: YAML, in one line.
        label: the override's name in messages.

    Raises:
        UserError: it is not YAML.
    """
    node = _compose(text, label, lines=False)
    if node is None:
        return None
    document = _Reader(label).document(node)
    if document.problems:
        texts = (p.message.removeprefix(f"{label}:1: ") for p in document.problems)
        raise UserError(*(f"{label}: {text}" for text in texts))
    return document.data


def _text(path: Path) -> str:
    try:
        most = int(limit(_MAX_BYTES, _WIDE_BYTES))
        data = read_regular(path, size=most + 1)
    except FileNotFoundError:
        near = [p.name for p in path.parent.glob("*.yaml")] if path.parent.is_dir() else []
        hint = suggest(path.name, near) if near else example_hint(path)
        raise UserError(f"{path}: no such file{hint}") from None
    except IsADirectoryError:
        raise UserError(f"{path}: is a folder; name the sweep file in it") from None
    except OSError as e:
        raise UserError(f"{path}: cannot be read ({e.strerror})") from None
    if len(data) > most:
        raise UserError(f"{path.name}: more than {most // 1024} KiB; a sweep file is small")
    if not yaml_is_intact(data):
        raise UserError(
            f"{path.name}:1: does not match its checksum: the file is damaged, or was edited; "
            "if you edited it, delete line 1"
        )
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as e:
        line = data[: e.start].count(b"\n") + 1
        raise UserError(f"{path.name}:{line}: not UTF-8 text; save the file as UTF-8") from None


def _compose(text: str, name: str, *, lines: bool = True) -> Node | None:
    yaml = YAML(typ="safe", pure=True)
    depth = int(limit(_MAX_DEPTH, _WIDE_DEPTH))
    yaml.Composer, yaml.max_depth = _Composer, depth
    try:
        node: Node | None = yaml.compose(text)
    except _TooManyValues:
        raise _too_many(name) from None
    except MaxDepthExceededError as e:
        at = f"{name}:{e.problem_mark.line + 1}" if lines else name
        raise UserError(f"{at}: nested more than {depth} levels deep") from None
    except MarkedYAMLError as e:
        mark = e.problem_mark or e.context_mark
        raise _invalid(name, mark.line if lines and mark else None, _reason(e, lines)) from None
    except ReaderError as e:
        line = text.count("\n", 0, e.position) if lines else None
        raise _invalid(name, line, f"character U+{e.character:04X} is not allowed") from None
    except YAMLError as e:
        raise _invalid(name, None, str(e).splitlines()[0]) from None
    return node


class _TooManyValues(Exception):
    """The file has more than `_MAX_VALUES` values."""


class _Composer(Composer):
    """Ends early: composing is slow, at some ten thousand values a second."""

    count = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        self.count += 1
        if self.count > limit(_MAX_VALUES):
            raise _TooManyValues
        return super().compose_node(parent, index)


def _too_many(name: str) -> UserError:
    return UserError(f"{name}: more than {limit(_MAX_VALUES):.0f} values; a sweep file is small")


def _invalid(name: str, line: int | None, reason: str) -> UserError:
    at = name if line is None else f"{name}:{line + 1}"
    return UserError(f"{at}: not valid YAML: {reason}")


def _reason(error: MarkedYAMLError, lines: bool) -> str:
    problem, context = str(error.problem or ""), str(error.context or "")
    if "'\\t'" in problem:
        return "a tab; YAML is indented with spaces"
    begin, end = error.context_mark, error.problem_mark
    if problem.startswith("but ") or not problem:
        problem = f"{context} {problem}".strip()
    elif lines and begin and end and begin.line != end.line:
        problem += f" ({context} that begins on line {begin.line + 1})"
    return problem.splitlines()[0]


def _line(node: Node) -> int:
    return int(node.start_mark.line) + 1


class _Reader:
    def __init__(self, name: str) -> None:
        self.lines: dict[KeyPath, int] = {}
        self.source = Source(name, self.lines)
        self.problems: list[Problem] = []
        self.refused: set[KeyPath] = set()
        self.nodes = 0
        self.open: set[int] = set()
        self.construct = YAML(typ="safe", pure=True).constructor.construct_object

    def document(self, root: Node) -> Document:
        self.lines[()] = _line(root)
        return Document(self.value(root, ()), self.source, self.problems, self.refused)

    def value(self, node: Node, path: KeyPath) -> Any:
        text = node.value if isinstance(node, ScalarNode) else ""
        self.nodes += 1 + len(text) // 100
        if self.nodes > limit(_MAX_VALUES):
            raise _too_many(self.source.name)
        if id(node) in self.open:
            return self.refuse(node, path, "an alias cannot hold itself")
        self.open.add(id(node))
        try:
            return self.plain(node, path)
        finally:
            self.open.discard(id(node))

    def plain(self, node: Node, path: KeyPath) -> Any:
        kind = str(node.tag).removeprefix(_TAG)
        if isinstance(node, MappingNode) and kind == "map":
            return self.mapping(node, path)
        if isinstance(node, SequenceNode) and kind == "seq":
            return [self.item(item, (*path, i)) for i, item in enumerate(node.value)]
        if isinstance(node, ScalarNode) and kind in _TEXT:
            return str(node.value)
        if isinstance(node, ScalarNode) and kind in _SCALARS:
            return self.scalar(node, path, kind)
        return self.refuse(node, path, f"tag {show(kind)} is not allowed; write plain data")

    def scalar(self, node: ScalarNode, path: KeyPath, kind: str) -> Any:
        try:
            value = self.construct(node)
        except (ValueError, KeyError, IndexError):  # `!!int x`, `!!bool x`, `!!int ""`
            return self.refuse(node, path, f"not a valid {kind}: {show(node.value)}")
        if isinstance(value, int) and value.bit_length() > limit(MAX_BITS, _WIDE_BITS):
            text = f"a whole number has at most {MAX_BITS} bits, got {show(node.value)}"
            return self.refuse(node, path, text)
        return value

    def item(self, node: Node, path: KeyPath) -> Any:
        self.lines[path] = _line(node)
        return self.value(node, path)

    def mapping(self, node: MappingNode, path: KeyPath) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = self.key(key_node, path)
            if key is None:
                continue
            here = (*path, key)
            if key in result:
                text = f"duplicate key, first on line {self.lines[here]}"
                self.problems.append(self.source.problem(here, text, _line(key_node)))
                continue
            self.lines[here] = _line(key_node)
            result[key] = self.value(value_node, here)
        return result

    def key(self, node: Node, path: KeyPath) -> str | None:
        kind = str(node.tag).removeprefix(_TAG)
        if kind == "merge":
            text = "YAML 1.2 has no merge key '<<'; repeat the keys"
        elif isinstance(node, ScalarNode) and kind in _TEXT | {"str"}:
            return str(node.value)
        else:
            shown = node.value if isinstance(node, ScalarNode) else "a collection"
            text = f"a key must be text, got {shown}; quote it"
        self.refuse(node, path, text)
        return None

    def refuse(self, node: Node, path: KeyPath, text: str) -> Any:
        """Record a problem; the value becomes None."""
        self.refused.add(path)
        self.problems.append(self.source.problem(path, text, _line(node)))
        return None
