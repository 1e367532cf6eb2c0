"""The sweep files and pipelines that ship with the package, as files to begin with."""

from __future__ import annotations

import re
from pathlib import Path

from search_spaces.errors import UserError, suggest

_ROOT = Path(__file__).parent
_DESCRIPTION = re.compile(r"^description: *(.+)$", re.MULTILINE)
_COMPANIONS = (".awk",)
"""Suffixes of files that examples refer to."""


def examples() -> dict[str, Path]:
    """Name to file: sweeps first, then pipelines, each in alphabetical order."""
    found = [*sorted(_ROOT.glob("*.yaml")), *sorted(_ROOT.glob("pipelines/*.yaml"))]
    return {path.stem: path for path in found}


def description(path: Path) -> str:
    """What an example says of itself; of a pipeline, also that it is one."""
    found = _DESCRIPTION.search(path.read_text(encoding="utf-8"))
    kind = "Pipeline: " if path.parent != _ROOT else ""
    return kind + (found[1] if found else "")


def find_example(name: str) -> Path:
    """The file of an example, by its name or that of its file.

    Raises:
        UserError: there is none of this name.
    """
    known, name = examples(), Path(name).stem
    if name not in known:
        raise UserError(f"no example {name}{suggest(name, known)}")
    return known[name]


def example_files(path: Path) -> dict[str, str]:
    """Names and texts of an example, and of the files beside it that it refers to.

    Commands in its comments name it as it will lie in the user's folder. The line that names the
    schema for editors is left out: the schema is not beside it there.
    """
    text = path.read_text(encoding="utf-8").replace("search_spaces/pipelines/", "")
    text = re.sub(r"^# yaml-language-server:.*\n(#\n)?", "", text.replace("search_spaces/", ""))
    beside = [p for p in path.parent.iterdir() if p.suffix in _COMPANIONS and p.name in text]
    return {path.name: text} | {p.name: p.read_text(encoding="utf-8") for p in sorted(beside)}


def example_hint(path: Path) -> str:
    """End of an error line about a missing file, if it has the name of an example."""
    return f"; `tune init {path.stem}` writes it" if path.stem in examples() else ""
