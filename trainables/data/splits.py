"""The split of a text, an image or a file: by its digest, or by its name."""

from __future__ import annotations

import logging
import re
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from pathlib import Path

from search_spaces.errors import UserError
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
ANY = frozenset(Split)
HELD_OUT = (Split.SELECTION, Split.TEST)
"""Those of a named set, a half each."""
log = logging.getLogger(__name__)
_SHARD = re.compile(r"-\d{5}-of-\d{5}$")


def split_of(path: Path) -> Split | None:
    """The split that the name of a file, or of its folder, says."""
    return named_split(_SHARD.sub("", path.stem)) or named_split(path.parent.name)


def named_split(name: str) -> Split | None:
    """The split that a name is, in small letters or capitals."""
    return SPLIT_NAMES.get(name.lower())


def exact_split(path: Path) -> Split:
    """The split that a file's name is: `train.jsonl`, `selection.jsonl` or `test.jsonl`.

    Raises:
        UserError: it is another name.
    """
    if path.stem not in list(Split):
        names = ", ".join(Split)
        raise UserError(f"{path}: with data.splits: file_names, files are named {names}")
    return Split(path.stem)


def split_by_digest(digest: str, share: float = 0.05, allowed: frozenset[Split] = ANY) -> Split:
    """The split of a SHA-256 in hex.

    Args:
        digest: of what is split.
        share: fraction of the selection split, and of the test split.
        allowed: splits that it may be in.
    """
    place = int(digest[:13], 16) / 16**13
    if place < share and Split.TEST in allowed:
        return Split.TEST
    if share <= place < 2 * share and Split.SELECTION in allowed:
        return Split.SELECTION
    return Split.TRAIN if Split.TRAIN in allowed else next(iter(allowed))


def assign_splits(units: Iterable[str], among: Sequence[Split] = tuple(Split)) -> dict[str, Split]:
    """Assign each unit to a split by its digest alone, unless that would leave a split empty.

    A unit that is the name of a split is that split. Without a train split, each has a half.

    Raises:
        UserError: there are fewer different units than splits.
    """
    ordered, share = sorted(set(units)), 0.05 if Split.TRAIN in among else 0.5
    if set(Split) >= set(ordered):
        return {unit: Split(unit) for unit in ordered}
    if len(ordered) < len(among):
        parts = "three" if Split.TRAIN in among else "two"
        raise UserError(f"data: {len(ordered)} different documents cannot be split in {parts}")
    splits = {unit: split_by_digest(unit, share, frozenset(among)) for unit in ordered}
    for needed in among:
        if needed not in splits.values():
            assigned = list(splits.values())
            donor = max(among, key=assigned.count)
            splits[next(u for u in ordered if splits[u] is donor)] = needed
    return splits


def warn_if_shared(values: Iterable[tuple[str, Hashable]], kind: str) -> None:
    """Log how many values, each with its split, are in the train split and in another."""
    seen = defaultdict[bool, set[int]](set)
    for split, value in values:
        seen[split == Split.TRAIN].add(hash(value))
    if both := len(seen[True] & seen[False]):
        log.warning("data: %d different %s are in the train split and in another", both, kind)
