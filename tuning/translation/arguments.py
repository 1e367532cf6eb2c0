"""The arguments of a call in a script, and account of those that were read."""

from __future__ import annotations

import ast
from typing import Any

from search_spaces.loading.sweep_file import OPEN
from trainables.user_code.python_source.python_file import UNREAD
from tuning.translation.script import Script


class CallArguments:
    """The arguments of a call by name.

    Args:
        script: of the call; at its end it notes the arguments that were not read.
        node: the call, or a name that stands for it; None: no argument is given. Of anything else
            no argument is certain, and it is noted.
        positional: names of the positional arguments, in order.

    Attributes:
        name: of what is called, without its package; empty if that is not certain.
        line: of the call.
    """

    def __init__(self, script: Script, node: ast.expr | None, *positional: str) -> None:
        self._script, self._read = script, set[str]()
        script.at_end.append(self._note_unread)
        self._given: dict[str, ast.expr] = {}
        self._rest: list[ast.expr] = []
        call = script.value(node)
        self.line, self.name = getattr(node, "lineno", None), ""
        if isinstance(call, ast.Call):
            script.read(call)
            self.name = script.name(call.func).rpartition(".")[2]
            self._given = dict(zip(positional, call.args, strict=False))
            self._rest = [*call.args[len(positional) :]]
            for keyword in call.keywords:
                self._add(keyword)
        elif script.literal(call) is not None and call is not None:
            self._rest = [call]

    def _add(self, keyword: ast.keyword) -> None:
        pairs = [(keyword.arg, keyword.value)]
        for name, value in pairs if keyword.arg else self._script.entries(keyword.value):
            if name is None:
                self._rest.append(value)
            else:
                self._given[name] = value

    def __contains__(self, name: str) -> bool:
        return name in self._given or bool(self._rest)

    def __bool__(self) -> bool:
        """Whether there is a call, or something that may be one."""
        return bool(self.name or self._rest)

    def node(self, *names: str) -> ast.expr | None:
        """What is given under the first of these names that is, read; None if nothing is.

        Where an argument may be among those that are not certain: these, as `*rest`.
        """
        name = next((name for name in names if name in self._given), "")
        self._read.add(name)
        rest = [ast.copy_location(ast.Starred(part), part) for part in self._rest[:1]]
        return self._given.get(name, rest[0] if rest else None)

    def get(self, name: str, default: Any = None) -> Any:
        """The plain value of an argument; `UNREAD` if it is not certain.

        Args:
            default: that of the other program.
        """
        if name not in self._given:
            return UNREAD if self._rest else default
        found = self._script.literal(self._given[name])
        if found is not UNREAD:
            self._read.add(name)
        return found

    def put(self, name: str, path: str, default: Any = None) -> None:
        """Set a key of the sweep file to an argument, or to `OPEN`."""
        value = self.get(name, default)
        self._script.draft.set(path, OPEN if value is UNREAD else value)

    def _note_unread(self) -> None:
        for name, value in self._given.items():
            if name not in self._read:
                self._script.note(value, f"{self.name}({name}={ast.unparse(value)})")
        for part in self._rest:
            if self.name:
                self._script.note(part, f"{ast.unparse(part)} of {self.name}")
            elif not isinstance(part, ast.Starred):  # else the call that has it notes it
                self._script.note(part)
