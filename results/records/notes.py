"""`notes.jsonl`: what people wrote about a sweep and its trials; the newest line of each counts."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass

from results.paths import SweepPaths
from results.storage.atomic import append_line, read_lines
from search_spaces.errors import UserError

_MAX_TEXT, _MAX_TAGS = 5000, 20
"""MLflow takes 5,000 characters of a tag's value."""


@dataclass(frozen=True)
class Note:
    """A text and tags, as they were written last."""

    text: str = ""
    tags: tuple[str, ...] = ()


def read_notes(paths: SweepPaths) -> dict[str, Note]:
    """The notes by trial, that of the sweep at the empty id; damaged lines are skipped."""
    found: dict[str, Note] = {}
    for line in read_lines(paths.notes):
        trial, text, tags = line.get("trial"), line.get("text"), line.get("tags")
        if isinstance(trial, str) and isinstance(text, str) and isinstance(tags, list):
            found[trial] = Note(text, tuple(map(str, tags)))
    return found


def write_note(paths: SweepPaths, trial: str, text: str, tags: Sequence[str]) -> Note:
    """Append a note, which replaces the one before; returns it without spaces around it.

    Args:
        trial: id of an existing trial; empty for the sweep.

    Raises:
        UserError: it is too long, or cannot be stored.
    """
    note = Note(text.strip(), tuple(dict.fromkeys(t for tag in tags if (t := tag.strip()))))
    if len(note.text) > _MAX_TEXT or len(", ".join(note.tags)) > _MAX_TEXT:
        raise UserError(f"a note has at most {_MAX_TEXT} characters, and so have its tags")
    if len(note.tags) > _MAX_TAGS:
        raise UserError(f"a note has at most {_MAX_TAGS} tags, not {len(note.tags)}")
    line = {"time": time.time(), "trial": trial, "text": note.text, "tags": note.tags}
    append_line(paths.notes, json.dumps(line))
    return note
