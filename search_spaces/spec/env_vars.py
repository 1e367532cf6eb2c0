"""`${ENV}` in the few fields that allow it. The value may be a secret, so it is never written to a
file: the original text is kept with it, and every dump and repr shows that text."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from search_spaces.errors import UserError

_REFERENCE = re.compile(r"\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^${}]*))?\}")


class ExpandedText(str):
    """Text in which `${ENV}` was expanded; `raw` is the text of the file."""

    __slots__ = ("raw",)
    raw: str

    def __new__(cls, value: str, raw: str) -> ExpandedText:
        """Pair the expanded value with its original text."""
        text = super().__new__(cls, value)
        text.raw = raw
        return text

    def __reduce__(self) -> tuple[type[ExpandedText], tuple[str, str]]:
        return type(self), (str(self), self.raw)

    def __repr__(self) -> str:
        return repr(self.raw)


def expand(text: str, environ: Mapping[str, str] | None = None) -> str:
    """Replace `${NAME}` and `${NAME:-default}` (used when NAME is unset or empty).

    Args:
        text: of the file.
        environ: the process's own by default.

    Raises:
        ValueError: a variable is not set, or the braces do not hold a name.
    """
    if "${" not in text or isinstance(text, ExpandedText):
        return text
    if "${" in _REFERENCE.sub("", text):
        raise ValueError(f"needs ${{NAME}} or ${{NAME:-default}}, got {text!r}")
    env = os.environ if environ is None else environ
    return ExpandedText(_REFERENCE.sub(lambda match: _value(match, env), text), text)


def _value(match: re.Match[str], environ: Mapping[str, str]) -> str:
    name, default = match["name"], match["default"]
    value = environ.get(name)
    if default is not None:
        return value or default
    if value is None:
        raise ValueError(f"environment variable {name} is not set (or write ${{{name}:-default}})")
    return value


def expand_now(place: str, text: str) -> str:
    """Expand a text of a frozen sweep file when it is used; `place` is its key.

    Raises:
        UserError: a variable is not set.
    """
    try:
        return expand(text)
    except ValueError as e:
        raise UserError(f"{place}: {e}") from e


def references(text: str) -> list[str]:
    """The names of the variables in a text that is not expanded."""
    return [match["name"] for match in _REFERENCE.finditer(text)]


def original(text: str | None) -> str | None:
    """The text of the file, in which `${ENV}` is not expanded."""
    return text.raw if isinstance(text, ExpandedText) else text
