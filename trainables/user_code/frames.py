"""The lines of the user's own code that an exception passed, without those of libraries."""

from __future__ import annotations

import os
import re
import sysconfig
import traceback
from pathlib import Path

from results.own_program import PACKAGES, PROGRAM

_STANDARD_LIBRARY = sysconfig.get_path("stdlib")
_MOST = 3
"""Number of lines that are kept: the innermost ones."""
_NOTE, _FOLDER = "at ", "in the folder "
_NO_FILE = re.compile(r"No such file or directory: '(?!/|\w+://)[^']")


def note_folder(error: BaseException) -> None:
    """Add the working directory to an exception about a relative path, as a note."""
    known = any(note.startswith(_FOLDER) for note in getattr(error, "__notes__", ()))
    if missing_file_hint(str(error), Path()) and not known:
        error.add_note(f"{_FOLDER}{os.getcwd()}")


def missing_file_hint(message: str, folder: Path | str) -> str:
    """What follows the message of an error about a file that is not there: where it was looked for.

    Args:
        folder: the working directory of the code.

    Returns:
        An empty text if its path is not relative.
    """
    known = _NO_FILE.search(message) is not None
    return f"; a relative path starts from the working directory, {folder}" if known else ""


def note_user_lines(error: BaseException) -> None:
    """Add the user's lines to an exception as a note, which outlives its traceback."""
    note_folder(error)
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
        lines = (f"{file}:{number}".removeprefix(f"{root}/") for file, number in own[-_MOST:])
        error.add_note(_NOTE + ", ".join(lines))


def user_traceback(error: BaseException) -> str:
    """The traceback without lines of this program; empty if no line is the user's."""
    whole = traceback.TracebackException.from_exception(error)
    parts, program = [whole], tuple(f"{PROGRAM}/{package}/" for package in PACKAGES)
    for part in parts:  # grows
        frames = [frame for frame in part.stack if not frame.filename.startswith(program)]
        part.stack = traceback.StackSummary.from_list(frames)
        parts += filter(None, (part.__cause__, part.__context__))
    own = any(_is_own(Path(frame.filename)) for frame in whole.stack)
    return "".join(whole.format()) if own else ""


def user_lines(error: BaseException) -> str:
    """` (train.py:40, data/text.py:12)`, the innermost line last; empty if none is known. Before
    that, for a relative path, where it was looked for.
    """
    notes = getattr(error, "__notes__", ())
    lines = [n.removeprefix(_NOTE) for n in notes if n.startswith(_NOTE)]
    folders = [n.removeprefix(_FOLDER) for n in notes if n.startswith(_FOLDER)]
    place = missing_file_hint(str(error), folders[0]) if folders else ""
    return f"{place} ({lines[-1]})" if lines else place


def _is_own(file: Path) -> bool:
    installed = {"site-packages", "dist-packages"} & set(file.parts)
    return file.is_absolute() and not installed and not file.is_relative_to(_STANDARD_LIBRARY)
