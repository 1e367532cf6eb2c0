"""The lines of the user's own code that an exception passed, without those of libraries."""

from __future__ import annotations

import sysconfig
import traceback
from pathlib import Path

from results.own_program import PACKAGES

_STANDARD_LIBRARY = sysconfig.get_path("stdlib")
_MOST = 3
"""Number of lines that are kept: the innermost ones."""
_NOTE = "at "


def note_user_lines(error: BaseException) -> None:
    """Add the user's lines to an exception as a note, which outlives its traceback."""
    found = [
        (Path(frame.f_code.co_filename), line)
        for frame, line in traceback.walk_tb(error.__traceback__)
        if str(frame.f_globals.get("__name__")).partition(".")[0] not in PACKAGES
    ]
    if isinstance(error, SyntaxError) and error.filename:
        found.append((Path(error.filename), error.lineno or 0))
    own = [(file, line) for file, line in found if _is_own(file)]
    if own:
        root = own[0][0].parent
        error.add_note(_NOTE + ", ".join(f"{_below(f, root)}:{n}" for f, n in own[-_MOST:]))


def user_lines(error: BaseException) -> str:
    """` (train.py:40, data/text.py:12)`, the innermost line last; empty if none is known."""
    notes = [n for n in getattr(error, "__notes__", ()) if n.startswith(_NOTE)]
    return f" ({notes[-1].removeprefix(_NOTE)})" if notes else ""


def _is_own(file: Path) -> bool:
    installed = {"site-packages", "dist-packages"} & set(file.parts)
    return file.is_absolute() and not installed and not file.is_relative_to(_STANDARD_LIBRARY)


def _below(file: Path, root: Path) -> Path:
    return file.relative_to(root) if file.is_relative_to(root) else file
