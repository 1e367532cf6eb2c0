"""Which files of a folder are images, of which class and split: by their names alone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainables.base import Split
from trainables.data.bad_rows import BadRow
from trainables.data.splits import SPLIT_NAMES, named_split

_PHOTOS = (".png", ".jpg", ".jpeg", ".jpe", ".jfif", ".gif", ".webp", ".avif", ".jp2")
_BITMAPS = (".bmp", ".tif", ".tiff", ".tga", ".ppm", ".pgm", ".pbm", ".pnm")
ENDINGS = frozenset((*_PHOTOS, *_BITMAPS))
_OF_SYSTEMS = frozenset(("thumbs.db", "desktop.ini", "__macosx"))


@dataclass(frozen=True)
class RawImage:
    """An image that is not decoded yet.

    Attributes:
        place: file and row, for messages.
        splits: those that it may be in.
        content: its pixels; or a file, its bytes, or lists of pixels, for `decode`.
    """

    place: str
    label: int | str
    splits: frozenset[Split]
    content: Any


def image_files(root: Path) -> Iterator[RawImage | BadRow]:
    """Every image of `<class>/<image>`, or of `train/<class>/<image>` and so on, in a fixed order.

    A bad row is an image, or what is in the place of one or of a split, that is not read.
    Hidden files and those of operating systems are not part of the data.
    """
    top = _visible(root)
    parts = {entry.name: named_split(entry.name) for entry in top if entry.is_dir()}
    train = [e for e in top if parts.get(e.name) is Split.TRAIN]
    if any(entry.is_dir() for folder in train for entry in _visible(folder)):
        yield from _split_folders(top, {split for split in parts.values() if split is not None})
    elif len(parts) > 1 and all(parts.values()):
        yield BadRow(f"{root}: {', '.join(parts)} are splits, and contain no folders of classes")
    else:
        yield from _classes(root, frozenset(Split))


def _split_folders(top: list[os.DirEntry[str]], given: set[Split]) -> Iterator[RawImage | BadRow]:
    for entry in top:
        split = named_split(entry.name)
        if not entry.is_dir():
            if _is_image(entry):
                yield BadRow(f"{entry.path}: is an image in the folder of no class")
        elif split is None:
            names = ", ".join(SPLIT_NAMES)
            yield BadRow(f"{entry.path}: is beside train, but none of the splits {names}")
        else:  # the train folder has the images of the splits without a folder, too
            without = frozenset(Split) - given | {Split.TRAIN}
            yield from _classes(entry, without if split is Split.TRAIN else frozenset((split,)))


def _classes(folder: os.PathLike[str], splits: frozenset[Split]) -> Iterator[RawImage | BadRow]:
    for entry in _visible(folder):
        if entry.is_dir():
            yield from _images(entry, splits)
        elif _is_image(entry):
            yield BadRow(f"{entry.path}: is an image in the folder of no class")


def _images(folder: os.DirEntry[str], splits: frozenset[Split]) -> Iterator[RawImage | BadRow]:
    entries = _visible(folder)
    if not entries:
        yield BadRow(f"{folder.path}: has no image, so it is no class")
    for entry in entries:
        if entry.is_dir():
            problem = f"is a folder in class '{folder.name}', which contains images only"
            yield BadRow(f"{entry.path}: {problem}")
        elif _is_image(entry):
            yield RawImage(entry.path, folder.name, splits, Path(entry.path))
        else:
            yield BadRow(f"{entry.path}: is not an image ({', '.join(sorted(ENDINGS))})")


def _is_image(entry: os.DirEntry[str]) -> bool:
    return Path(entry.name).suffix.lower() in ENDINGS


def _visible(folder: os.PathLike[str]) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        shown = (e for e in entries if e.name[0] != "." and e.name.lower() not in _OF_SYSTEMS)
        return sorted(shown, key=lambda entry: entry.name)
