"""The split that the name of a file or folder says."""

from __future__ import annotations

import re
from pathlib import Path

from trainables.base import Split

SPLIT_NAMES = {
    "train": Split.TRAIN,
    "training": Split.TRAIN,
    "val": Split.SELECTION,
    "valid": Split.SELECTION,
    "validation": Split.SELECTION,
    "dev": Split.SELECTION,
    "eval": Split.SELECTION,
    "selection": Split.SELECTION,
    "test": Split.TEST,
    "testing": Split.TEST,
}
_SHARD = re.compile(r"-\d{5}-of-\d{5}$")


def split_of(path: Path) -> Split | None:
    """The split that the name of a file, or of its folder, says."""
    return named_split(_SHARD.sub("", path.stem)) or named_split(path.parent.name)


def named_split(name: str) -> Split | None:
    """The split that a name is, in small letters or capitals."""
    return SPLIT_NAMES.get(name.lower())
