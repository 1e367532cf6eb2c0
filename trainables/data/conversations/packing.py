"""Packing: several conversations in one sequence, as few sequences as a greedy rule finds."""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from trainables.data.conversations.chat import Tokens
from trainables.data.tokenizer import Encoder

AT_ONCE = 4096
"""Sequences that are written together."""


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
    if not sizes:
        return 0
    flat = np.memmap(files[0], encoder.dtype, "r"), np.memmap(files[1], np.bool_, "r")
    bins = best_fit(sizes, length + 1) if packed else [[i] for i in range(len(sizes))]
    lengths = np.array([sum(sizes[i] for i in items) for items in bins], dtype=np.int64)
    begins = np.cumsum(sizes) - sizes
    for start in range(0, len(bins), AT_ONCE):
        part = bins[start : start + AT_ONCE]
        shape = len(part), length + 1
        ids, counted = np.full(shape, encoder.end, encoder.dtype), np.zeros(shape, np.bool_)
        positions = np.zeros(shape, np.int32)
        for row, items in enumerate(part):
            begin = 0
            for item in items:
                to, of = (slice(at, at + sizes[item]) for at in (begin, begins[item]))
                ids[row, to], counted[row, to] = flat[0][of], flat[1][of]
                positions[row, to] = np.arange(sizes[item])
                counted[row, begin] = False  # nothing comes before it
                begin += sizes[item]
            positions[row, begin:] = np.arange(length + 1 - begin)
        _write_rows(f"{stem}.npy", ids, start, len(bins))
        _write_rows(f"{stem}.counted.npy", counted[:, 1:], start, len(bins))
        if packed:
            _write_rows(f"{stem}.positions.npy", positions[:, :-1], start, len(bins))
    np.save(f"{stem}.lengths.npy", lengths)
    for file in files:
        file.unlink()
    return len(bins)


def _write_tokens(
    files: tuple[Path, Path], conversations: Iterable[Tokens], dtype: np.dtype[Any]
) -> list[int]:
    """Write token ids and flags one behind the other; returns the size of each conversation."""
    sizes = []
    with open(files[0], "wb") as ids, open(files[1], "wb") as flags:
        for tokens in conversations:
            sizes.append(len(tokens.ids))
            ids.write(tokens.ids.astype(dtype).tobytes())
            flags.write(tokens.counted.tobytes())
    return sizes


def _write_rows(file: str, rows: npt.NDArray[Any], start: int, count: int) -> None:
    """Write rows of an array of `count` ones, which is in memory only as long as that takes."""
    if start == 0:
        np.lib.format.open_memmap(file, "w+", rows.dtype, (count, rows.shape[1]))
    np.load(file, mmap_mode="r+")[start : start + len(rows)] = rows
