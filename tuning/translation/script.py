"""A script of another program, and account of what was read of it."""

from __future__ import annotations

import ast
from collections.abc import Callable

from trainables.user_code.python_source.python_file import SEARCH, PythonFile
from tuning.translation.draft import Draft

_OTHER = {"report", "get_checkpoint", "get_context", "from_directory", "TrialPruned"}
_OTHER |= {"set_verbosity", "get_logger"}
"""Functions of Ray Tune and Optuna for training code and messages."""
_SHOWN = ("optuna.visualization", "optuna.importance", "optuna.artifacts")


class Script(PythonFile):
    """A script, and the draft that is made of it.

    Attributes:
        at_end: called before the calls that were not read are noted.
    """

    def __init__(self, draft: Draft, tree: ast.Module) -> None:
        super().__init__(draft.source, tree)
        self.draft = draft
        self._seen: set[ast.AST] = set()
        self.at_end: list[Callable[[], None]] = []

    def read(self, node: ast.AST) -> None:
        """Say that what is in a node is translated or noted, or is not about the search."""
        self._seen.add(node)

    def note(self, node: ast.AST, text: str = "") -> None:
        """Say in a comment that a part of the script is not translated."""
        self.read(node)
        line = getattr(node, "lineno", None)
        self.draft.note(line, f"{text or ast.unparse(node)} is not translated")

    def note_unread(self) -> None:
        """Note each argument, and each call of Ray Tune or Optuna, that was not read."""
        for close in self.at_end:
            close()
        for call in self.calls():
            name = self.name(call.func)
            is_search = name.startswith(SEARCH) and not name.startswith(_SHOWN)
            is_search = is_search and name.rpartition(".")[2] not in _OTHER
            if is_search and not self._is_read(call):
                self.note(call)

    def _is_read(self, node: ast.AST) -> bool:
        above: ast.AST | None = node
        while above is not None and above not in self._seen:
            above = self.parents.get(above)
        return above is not None
