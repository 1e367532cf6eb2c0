"""Averages from file to file, in memory that does not grow with the models or their number."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from results.averaging.adapters import Adapters
from results.averaging.file_stack import FileStack, ReadBuffers, planned, write_model
from results.averaging.mean import Weighted, mean
from results.averaging.method import Combine, Method
from results.averaging.numerics import DTYPES, STORED, narrow
from results.averaging.ordered_map import in_order
from results.averaging.stack import GRAIN
from results.checkpoints.tensor_layout import (
    Layout,
    common_metadata,
    layout_mismatch,
    read_layout,
    start_mismatch,
)
from results.records.machines import available_cpus
from search_spaces.errors import UserError, suggest

MAX_MEMORY = 64 << 20
"""Bytes that an average may hold unless told otherwise."""

_CACHED = 1 << 16
"""Elements of a piece at most: its sum, 512 KiB, stays in a processor's own cache."""
_SPAN = 4
"""Pieces that a thread makes at a time."""
_SAMPLE = 1 << 12
"""Bytes of each tensor by which models are told apart at first."""
_AHEAD = 2
"""Spans for each thread that are made or wait to be written."""
_OWN_COLUMNS = 5
"""Arrays of a piece's length beside the method's: raw bytes, value, start, and two to round."""

STATISTICS = ("running_mean", "running_var")
"""Endings of BatchNorm's statistics: not learned, so they have a mean and no task vector."""
COUNTER = "num_batches_tracked"
"""Ending of BatchNorm's counter, of which the largest is taken."""


@dataclass(frozen=True)
class Averaged:
    """What was written.

    Attributes:
        files: that hold tensors.
        rank_loss: part of the mean LoRA update's norm that its rank could not hold (0 to 1); None
            where there are no adapters.
    """

    files: tuple[Path, ...]
    rank_loss: float | None = None


def average(
    sources: Sequence[Path],
    target: Path,
    weights: Sequence[float] | None = None,
    *,
    method: Method | None = None,
    base: Path | None = None,
    dtype: str | None = None,
    max_memory: int = MAX_MEMORY,
    max_shard: int | None = None,
    digests: Sequence[str] | None = None,
) -> Averaged:
    """Write the average of models, tensor by tensor.

    The result does not depend on the order of the sources. The mean of identical models is that
    model, bit for bit, whatever the weights. Tensors that are not float64, float32, float16 or
    bfloat16 (masks, quantised blocks) have no mean: they must be equal in all sources; of
    BatchNorm's counters the largest is taken. LoRA's pairs are averaged as the updates that they
    stand for (see `adapters`).

    Args:
        sources: safetensors files, or indexes of shards, with the same names, shapes and dtypes.
        target: replaced atomically; its header holds the metadata that all sources agree on.
        weights: one per source, where the method takes them; only their ratios matter.
        method: default: the weighted mean.
        base: the models' common start, for methods that need it.
        dtype: of the result's floats, as torch names it; default: each tensor's own.
        max_memory: bytes to hold at once.
        max_shard: bytes of one file of the result; default: one file, whatever its size.
        digests: SHA-256 of each source in hex, where they are known: saves reading for them.

    Raises:
        UserError: sources that do not fit together, a NaN or an infinity in one of them, a result
            too large for its format, or too little memory; the message names file and tensor.
    """
    method = method or Weighted()
    shares = method.shares(len(sources), weights)
    start = _start(method, base)
    layouts = [read_layout(path) for path in sources]
    for other in layouts[1:]:
        if reason := layout_mismatch(layouts[0], other):
            raise UserError(f"{sources[0]} and {other.path} cannot be averaged: {reason}")
    if start and (reason := start_mismatch(layouts[0], start)):
        raise UserError(f"{sources[0]} cannot have started from {start.path}: {reason}")
    # one order for every order of the arguments: by content, because paths are arbitrary; the
    # largest share first, because the differences from the first are what is averaged
    known = digests or _contents(layouts)
    order = sorted(range(len(sources)), key=lambda i: (-shares[i], known[i]))
    layouts, shares = [layouts[i] for i in order], [shares[i] for i in order]
    plan = planned(layouts[0], _format(dtype))
    adapters = Adapters(layouts, shares, plan, method, max_memory)
    step, threads = _cut(method, len(layouts), max_memory)
    metadata = common_metadata([layout.metadata for layout in layouts])

    def pieces(name: str) -> Iterator[Any]:
        if name in adapters.names:
            return iter([adapters.tensor(name)])
        return work.pieces(name, plan[name].dtype)

    with ThreadPoolExecutor(threads) as pool:
        work = _Work(layouts, start, shares, method, step, threads, pool)
        files = write_model(plan, pieces, target, metadata, max_shard)
    return Averaged(tuple(files), adapters.rank_loss)


def _start(method: Method, base: Path | None) -> Layout | None:
    if not method.needs_base:
        return None
    if base is None:
        raise UserError(f"method {method.name()} needs the weights from which the models started")
    return read_layout(base)


def _format(dtype: str | None) -> str | None:
    if dtype is not None and dtype not in DTYPES:
        raise UserError(f"no float format '{dtype}'{suggest(dtype, DTYPES)}")
    return None if dtype is None else DTYPES[dtype]


def _cut(method: Method, models: int, max_memory: int) -> tuple[int, int]:
    """Elements of a piece, so that all arrays of that length fit, and threads that can have them.

    Only means are made by several threads: other methods look at a whole tensor first.
    """
    row = 8 * (method.columns(models) + _OWN_COLUMNS)
    step = min(_CACHED, max_memory // row) // GRAIN * GRAIN
    if not step:
        raise UserError(
            f"an average of {models} models by method {method.name()} needs at least "
            f"{row * GRAIN / 1e6:.1f} MB of memory, and may take {max_memory / 1e6:.1f} MB"
        )
    of_one = step * (row + 8 * _SPAN * _AHEAD)
    return step, max(1, min(available_cpus(), max_memory // of_one)) if method.linear else 1


def _contents(layouts: Sequence[Layout]) -> list[str]:
    """What tells models apart by content: a sample of each, or all of it where samples agree."""
    samples = [_sample(layout) for layout in layouts]
    twins = {sample for sample in samples if samples.count(sample) > 1}
    return [s + _digest(x) if s in twins else s for s, x in zip(samples, layouts, strict=True)]


def _sample(layout: Layout) -> str:
    digest = hashlib.sha256()
    for tensor in layout.tensors.values():
        size = min(_SAMPLE, tensor.end - tensor.start)
        with open(tensor.file, "rb") as f:
            digest.update(os.pread(f.fileno(), size, tensor.start))
    return digest.hexdigest()


def _digest(layout: Layout) -> str:
    digest = hashlib.sha256()
    for path in layout.files:
        with open(path, "rb") as f:
            digest.update(hashlib.file_digest(f, "sha256").digest())
    return digest.hexdigest()


@dataclass
class _Work:
    """The way of one tensor after another through a method."""

    layouts: Sequence[Layout]
    start: Layout | None
    shares: Sequence[float]
    method: Method
    step: int
    threads: int
    pool: ThreadPoolExecutor

    def __post_init__(self) -> None:
        self._buffers = [ReadBuffers(self.step) for _ in range(self.threads)]

    def pieces(self, name: str, dtype: str) -> Iterator[Any]:
        """The bytes of one tensor of the result."""
        tensor = self.layouts[0].tensors[name]
        stored = tensor.dtype
        with self._open(name, self._buffers[0]) as stack:
            if stored in STORED and self.threads > 1 and tensor.size > _SPAN * self.step:
                yield from self._by_all(stack, dtype)
            elif stored in STORED:
                yield from self._floats(stack, dtype)
            elif stored == "I64" and name.endswith(COUNTER):
                yield self._largest(stack)
            else:
                yield from self._equal(stack)

    def _open(self, name: str, buffers: ReadBuffers) -> FileStack:
        return FileStack(name, self.layouts, self.start, self.shares, buffers)

    def _floats(self, stack: FileStack, dtype: str) -> Iterator[Any]:
        plain = stack.name.endswith(STATISTICS)
        combine = mean(stack) if plain else self.method.start(stack)
        return (_bytes(stack, combine, dtype, piece) for piece in stack.pieces())

    def _by_all(self, own: FileStack, dtype: str) -> Iterator[Any]:
        """A mean, by all threads."""
        hands: SimpleQueue[tuple[FileStack, Combine]] = SimpleQueue()

        def make(pieces: Sequence[slice]) -> list[Any]:
            stack, combine = hand = hands.get()
            try:
                return [_bytes(stack, combine, dtype, piece) for piece in pieces]
            finally:
                hands.put(hand)

        with ExitStack() as files:
            others = (self._open(own.name, buffers) for buffers in self._buffers[1:])
            for stack in [own, *map(files.enter_context, others)]:
                hands.put((stack, mean(stack)))
            ahead = _AHEAD * self.threads - 1
            for made in in_order(self.pool, make, _spans(own.pieces()), ahead):
                yield from made

    def _largest(self, stack: FileStack) -> bytes:
        import numpy as np

        tensor = self.layouts[0].tensors[stack.name]
        size = tensor.end - tensor.start
        found = [np.frombuffer(bytes(stack.bytes_of(x, 0, size)), "<i8") for x in self.layouts]
        largest: bytes = np.maximum.reduce(found).tobytes()
        return largest

    def _equal(self, stack: FileStack) -> Iterator[bytes]:
        first, *others = self.layouts
        tensor = first.tensors[stack.name]
        size = tensor.end - tensor.start
        for offset in range(0, size, self.step):
            read = partial(stack.bytes_of, offset=offset, size=min(self.step, size - offset))
            expected = bytes(read(first))
            for other in others:
                if read(other) != expected:
                    raise UserError(
                        f"{first.path} and {other.path} cannot be averaged: tensor '{stack.name}' "
                        f"differs, and {tensor.dtype} has no mean"
                    )
            yield expected


def _spans(pieces: Iterator[slice]) -> Iterator[list[slice]]:
    while span := list(islice(pieces, _SPAN)):
        yield span


def _bytes(stack: FileStack, combine: Combine, dtype: str, piece: slice) -> memoryview:
    """A piece of the result as it is written."""
    rounded = narrow(combine(piece), dtype)
    if rounded is None:
        for model in range(len(stack.shares)):
            stack.value(model, piece)  # refuses what is not finite by its name
        raise UserError(f"the average of tensor '{stack.name}' overflows {dtype}")
    return rounded.data.cast("B")
