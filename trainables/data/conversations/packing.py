"""Packing: several conversations in one sequence, as few sequences as a greedy rule finds."""

from __future__ import annotations

import heapq
import itertools
from bisect import bisect_left, insort
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from search_spaces.errors import UserError
from trainables.base import Split
from trainables.client import Rows
from trainables.data.tokenizer import Encoder

AT_ONCE = 4096
"""Sequences that are written together."""
Flags = npt.NDArray[np.bool_]


def best_fit(lengths: Sequence[int] | Rows, capacity: int) -> list[list[int]]:
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
    sizes = np.asarray(lengths)
    for item in map(int, np.argsort(-sizes, kind="stable")):
        size = int(sizes[item])
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


class TokenStream:
    """Conversations of a split as flat files of token ids and flags, from which they are packed."""

    def __init__(self, folder: Path, split: Split, encoder: Encoder) -> None:
        self._stem, self._split, self._encoder = f"{folder / split}", split, encoder
        self._ids, self._flags = (open(self._stem + end, "wb") for end in (".ids", ".flags"))
        self._sizes: list[int] = []

    def add(self, ids: Rows, counted: Flags) -> None:
        """Append a conversation."""
        self._sizes.append(len(ids))
        self._ids.write(ids.astype(self._encoder.dtype).tobytes())
        self._flags.write(counted.tobytes())

    def pack(self, length: int, *, packed: bool) -> int:
        """Write the arrays of the split, and remove the files; returns the number of sequences.

        With `packed`, several conversations share one of `length + 1` tokens.

        Raises:
            UserError: there is no conversation.
        """
        if not self._sizes:
            raise UserError(f"data: no row of the {self._split} split can be used; give more rows")
        self._ids.close()
        self._flags.close()
        sizes, width = np.array(self._sizes, dtype=np.int64), length + 1
        ids = np.memmap(self._ids.name, self._encoder.dtype, "r")
        flags = np.memmap(self._flags.name, np.bool_, "r")
        bins = best_fit(sizes, width) if packed else [[i] for i in range(len(sizes))]
        lengths = []
        with ExitStack() as files:
            shape = len(bins), length
            ids_file = _create(files, self._stem, ids.dtype, (len(bins), width))
            flags_file = _create(files, f"{self._stem}.counted", flags.dtype, shape)
            places_file = packed and _create(files, f"{self._stem}.positions", np.int32, shape)
            for start in range(0, len(bins), AT_ONCE):
                part = _Part(bins[start : start + AT_ONCE], sizes, width)
                ids_file.write(part.filled(ids, self._encoder.end).tobytes())
                flags_file.write(
                    (part.filled(flags, False) & (part.positions > 0))[:, 1:].tobytes()
                )
                if places_file:
                    places_file.write(part.positions[:, :-1].astype(np.int32).tobytes())
                lengths.append(part.used)
        np.save(f"{self._stem}.lengths.npy", np.concatenate(lengths))
        for name in (self._ids.name, self._flags.name):
            Path(name).unlink()
        return len(bins)


class _Part:
    """Some of the sequences, as places of their tokens in flat files.

    Attributes:
        used: tokens of each sequence, int64 [sequences].
        positions: of each token in its conversation, or in the padding, int64 [sequences, width].
    """

    def __init__(self, bins: list[list[int]], sizes: Rows, width: int) -> None:
        items = np.fromiter(itertools.chain.from_iterable(bins), np.int64)
        rows = np.repeat(np.arange(len(bins)), [len(each) for each in bins])
        mine = sizes[items]
        self.used = np.bincount(rows, mine, len(bins)).astype(np.int64)
        before = np.cumsum(mine) - mine  # in this part
        in_row = before - np.repeat(np.cumsum(self.used) - self.used, np.bincount(rows))
        within = np.arange(mine.sum()) - np.repeat(before, mine)
        self._to = np.repeat(rows * width + in_row, mine) + within
        self._of = np.repeat((np.cumsum(sizes) - sizes)[items], mine) + within
        self.positions = np.arange(width) - self.used[:, None]
        self.positions.reshape(-1)[self._to] = within

    def filled(self, flat: npt.NDArray[Any], padding: int) -> npt.NDArray[Any]:
        """The tokens' values, [sequences, width]."""
        found = np.full(self.positions.shape, padding, flat.dtype)
        found.reshape(-1)[self._to] = flat[self._of]
        return found


def _create(files: ExitStack, stem: str, dtype: Any, shape: tuple[int, int]) -> IO[bytes]:
    """An open file of an array, to which the rows are written: a mapped one would take memory."""
    file = files.enter_context(open(f"{stem}.npy", "wb"))
    described = {"descr": np.dtype(dtype).str, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, described)
    return file
