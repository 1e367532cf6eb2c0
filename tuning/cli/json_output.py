"""`--json`: one versioned document on stdout, and an error as one object on stderr."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any

from tuning.cli.formatting import echo

VERSION = 1
"""Of all documents: it changes when a member is renamed, removed, or means something else."""

_PLACE = re.compile(r"(?:(?P<file>[^\n]+?):(?P<line>\d+)|(?P<whole>\S*/\S+|\S+\.ya?ml)): ")
_HINT = re.compile(
    r"\((did you mean [^)]*\?|valid: [^)]*|Possible options: [^)]*)\)|; (?!.*; )(.+)$", re.DOTALL
)


def print_json(document: Mapping[str, Any]) -> None:
    """Print the document of a command. A number that JSON does not have, as NaN, is null."""
    echo(json.dumps({"version": VERSION, **_plain(document)}, indent=2))


def print_json_line(document: Mapping[str, Any]) -> None:
    """Print one of many documents, each on a line of its own."""
    echo(json.dumps({"version": VERSION, **_plain(document)}))


def error_json(problems: Sequence[str]) -> str:
    """The first problem as JSON in one line: error, file, line and hint; `more` has the others.

    A hint is what a problem's line proposes; the text of the error has it, too.
    """
    first, *more = map(_parts, problems)
    return json.dumps({"version": VERSION, **first, **({"more": more} if more else {})})


def _parts(problem: str) -> dict[str, Any]:
    place, hint = _PLACE.match(problem), _HINT.search(problem)
    return {
        "error": problem[place.end() :] if place else problem,
        "file": (place["file"] or place["whole"]) if place else None,
        "line": int(place["line"]) if place and place["line"] else None,
        "hint": (hint[1] or hint[2]) if hint else None,
    }


def _plain(value: Any) -> Any:
    """The value of types that JSON has."""
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(one) for one in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Enum):
        return value.value
    return str(value) if isinstance(value, Path) else value
