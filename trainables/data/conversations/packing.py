"""Packing: several conversations in one sequence, as few sequences as a greedy rule finds."""

from __future__ import annotations

import heapq
import itertools
from array import array
from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from trainables.data.conversations.chat import Tokens
from trainables.data.tokenizer import Encoder

Sizes = npt.NDArray[np.int64]
AT_ONCE = 1 << 15
"""Tokens that are written together, at least a sequence."""


def best_fit(lengths: Sequence[int], capacity: int) -> list[list[int]]:
    """Pack items into bins by best fit decreasing (Johnson 1973; Ding et al. 2024 for sequences).

    Args:
        lengths: of the items, each at most `capacity`.
        capacity: of a bin.

    Returns:
        The numbers of the items of each bin.
    """
    bins: list[list[int]] = []
    with_room: list[list[int]] = [[] for _ in range(capacity + 1)]  # heaps of bins, by room
    rooms: list[int] = []  # those that some bin has, ascending
    for item in np.argsort(-np.asarray(lengths), kind="stable").tolist():
        size = lengths[item]
        place = bisect_left(rooms, size)
        if place == len(rooms):
            room, number = capacity, len(bins)
            bins.append([])
        else:
            room = rooms[place]
            number = heapq.heappop(with_room[room])
            if not with_room[room]:
                del rooms[place]
        bins[number].append(item)
        if not with_room[room - size]:
            insort(rooms, room - size)
        heapq.heappush(with_room[room - size], number)
    return bins


def write_sequences(
    stem: str, conversations: Iterable[Tokens], length: int, encoder: Encoder, *, packed: bool
) -> int:
    """Write the arrays of a split, whose files begin with `stem`; returns the number of sequences.

    The tokens go to two flat files first: there may be more than memory takes.

    Args:
        stem: folder and name of the split.
        conversations: of at most `length + 1` tokens.
        length: of the inputs.
        encoder: of the tokens.
        packed: whether several conversations share a sequence.
    """
    files = Path(f"{stem}.ids"), Path(f"{stem}.flags")
    sizes = _write_tokens(files, conversations, encoder.dtype)
    if not len(sizes):
        return 0
    flat = np.memmap(files[0], encoder.dtype, "r"), np.memmap(files[1], np.bool_, "r")
    bins = best_fit(sizes.tolist(), length + 1) if packed else [[i] for i in range(len(sizes))]
    lengths, begins = np.zeros(len(bins), np.int64), np.cumsum(sizes) - sizes
    at_once = -(-AT_ONCE // (length + 1))
    for start in range(0, len(bins), at_once):
        part = bins[start : start + at_once]
        shape = len(part), length + 1
        ids, counted = np.full(shape, encoder.end, encoder.dtype), np.zeros(shape, np.bool_)
        items = np.fromiter(itertools.chain.from_iterable(part), np.int64)
        rows = np.repeat(np.arange(len(part)), [len(items) for items in part])
        own, before = _count_up(sizes[items])
        used = np.bincount(rows, sizes[items]).astype(np.int64)
        firsts = rows * (length + 1) + before - (np.cumsum(used) - used)[rows]
        to, of = (np.repeat(first, sizes[items]) + own for first in (firsts, begins[items]))
        ids.flat[to], counted.flat[to] = flat[0][of], flat[1][of]
        counted.flat[firsts] = False  # nothing comes before them
        positions = (np.arange(length + 1) - used[:, None]).astype(np.int32)  # of the padding
        positions.flat[to] = own
        lengths[start : start + at_once] = used
        _write_rows(f"{stem}.npy", ids, start, len(bins))
        _write_rows(f"{stem}.counted.npy", counted[:, 1:], start, len(bins))
        if packed:
            _write_rows(f"{stem}.positions.npy", positions[:, :-1], start, len(bins))
    np.save(f"{stem}.lengths.npy", lengths)
    for file in files:
        file.unlink()
    return len(bins)


def _count_up(sizes: Sizes) -> tuple[Sizes, Sizes]:
    """The places 0, 1, … of each part's tokens in the part, and where the parts begin."""
    begins = np.cumsum(sizes) - sizes
    return np.arange(sizes.sum()) - np.repeat(begins, sizes), begins


def _write_tokens(
    files: tuple[Path, Path], conversations: Iterable[Tokens], dtype: np.dtype[Any]
) -> Sizes:
    """Write token ids and flags one behind the other; returns the size of each conversation."""
    sizes = array("q")
    with open(files[0], "wb") as ids, open(files[1], "wb") as flags:
        for tokens in conversations:
            sizes.append(len(tokens.ids))
            ids.write(tokens.ids.astype(dtype).tobytes())
            flags.write(tokens.counted.tobytes())
    return np.array(sizes, dtype=np.int64)


def _write_rows(file: str, rows: npt.NDArray[Any], start: int, count: int) -> None:
    """Write rows of an array of `count` ones, which is in memory only as long as that takes."""
    if start == 0:
        np.lib.format.open_memmap(file, "w+", rows.dtype, (count, rows.shape[1]))
    np.load(file, mmap_mode="r+")[start : start + len(rows)] = rows
