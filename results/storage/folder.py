"""Folders of files that a command writes for other programs, and copies of files."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from search_spaces.errors import UserError


@contextmanager
def making(folder: Path, mode: int = 0o777) -> Iterator[None]:
    """Make a folder, if it is not there, and explain why it or its files cannot be written.

    Raises:
        UserError: an error of the file system in the block.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=mode)
        yield
    except OSError as e:
        raise UserError(f"{e.filename or folder}: cannot be written ({e.strerror})") from e


def link_or_copy(source: str | Path, target: str | Path) -> None:
    """Make a file the same as another, which never changes: a hard link if that is possible."""
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copyfile(source, target)


def write_folder(folder: Path, texts: Mapping[str, str]) -> list[Path]:
    """Write files by their names relative to a folder; returns their paths.

    Raises:
        UserError: one cannot be written.
    """
    with making(folder):
        for name, text in texts.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")
    return [folder / name for name in texts]
