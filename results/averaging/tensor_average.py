"""Average one tensor after another, floats by a method, other types by rules of their own."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import islice
from queue import SimpleQueue
from typing import Any, TypeVar

from results.averaging.adapters import Adapters
from results.averaging.mean import mean
from results.averaging.method import Combine, Method
from results.averaging.numerics import STORED, narrow
from results.averaging.stack import FileStack, ModelFiles, ReadBuffers
from results.checkpoints.tensor_layout import PlannedTensor
from search_spaces.errors import UserError

Item = TypeVar("Item")
Result = TypeVar("Result")

PIECES_PER_TASK = 4
"""Pieces that a thread averages at a time."""
TASKS_AHEAD = 2
"""Tasks per thread that are in progress or wait to be written."""

STATISTICS = ("running_mean", "running_var")
"""Name endings of BatchNorm's statistics: not learned, so they have a mean and no task vector."""
COUNTER = "num_batches_tracked"
"""Name ending of BatchNorm's counter; the result has the largest one."""


@dataclass
class TensorAverager:
    """Computes the bytes of each tensor of the result.

    Attributes:
        method: of averaging, for float tensors.
        plan: dtype and shape of each tensor of the result.
        piece_size: elements of a piece.
        pool: computes means; this object must not outlive it.
    """

    models: ModelFiles
    method: Method
    plan: Mapping[str, PlannedTensor]
    adapters: Adapters
    piece_size: int
    threads: int
    pool: ThreadPoolExecutor

    def __post_init__(self) -> None:
        self._buffers = [ReadBuffers(self.piece_size) for _ in range(self.threads)]

    def pieces(self, name: str) -> Iterator[Any]:
        """The bytes of one tensor of the result, piece by piece."""
        if name in self.adapters.names:
            yield self.adapters.tensor(name)
            return
        tensor = self.models.layouts[0].tensors[name]
        stored, dtype = tensor.dtype, self.plan[name].dtype
        parallel_size = PIECES_PER_TASK * self.piece_size
        with FileStack(name, self.models, self._buffers[0]) as stack:
            if stored in STORED and self.threads > 1 and tensor.size > parallel_size:
                yield from self._mean_in_threads(stack, dtype)
            elif stored in STORED:
                is_statistic = name.endswith(STATISTICS)
                combine = mean(stack) if is_statistic else self.method.prepare(stack)
                for piece in stack.pieces():
                    yield _rounded_bytes(stack, combine, dtype, piece)
            elif stored == "I64" and name.endswith(COUNTER):
                yield self._largest(stack)
            else:
                yield from self._equal(stack)

    def _mean_in_threads(self, first: FileStack, dtype: str) -> Iterator[Any]:
        free: SimpleQueue[tuple[FileStack, Combine]] = SimpleQueue()

        def compute(pieces: Sequence[slice]) -> list[Any]:
            stack, combine = reader = free.get()
            try:
                return [_rounded_bytes(stack, combine, dtype, piece) for piece in pieces]
            finally:
                free.put(reader)

        with ExitStack() as files:
            others = (FileStack(first.name, self.models, b) for b in self._buffers[1:])
            for stack in [first, *map(files.enter_context, others)]:
                free.put((stack, mean(stack)))
            ahead = TASKS_AHEAD * self.threads - 1
            pieces = first.pieces()
            tasks = iter(lambda: list(islice(pieces, PIECES_PER_TASK)), [])
            for result in _map_in_order(self.pool, compute, tasks, ahead):
                yield from result

    def _largest(self, stack: FileStack) -> bytes:
        import numpy as np

        layouts = self.models.layouts
        tensor = layouts[0].tensors[stack.name]
        size = tensor.end - tensor.start
        found = [np.frombuffer(bytes(stack.bytes_of(x, 0, size)), "<i8") for x in layouts]
        largest: bytes = np.maximum.reduce(found).tobytes()
        return largest

    def _equal(self, stack: FileStack) -> Iterator[bytes]:
        """The bytes of a tensor that must be the same in all models."""
        first, *others = self.models.layouts
        tensor = first.tensors[stack.name]
        size = tensor.end - tensor.start
        for offset in range(0, size, self.piece_size):
            count = min(self.piece_size, size - offset)
            read = partial(stack.bytes_of, offset=offset, size=count)
            expected = bytes(read(first))
            for other in others:
                if read(other) != expected:
                    raise UserError(
                        f"{first.path} and {other.path} cannot be averaged: tensor '{stack.name}' "
                        f"differs, and {tensor.dtype} is not averaged"
                    )
            yield expected


def _map_in_order(
    pool: ThreadPoolExecutor, function: Callable[[Item], Result], items: Iterable[Item], ahead: int
) -> Iterator[Result]:
    """Yield the result for each item, in order; at most `ahead` more are finished or in progress.

    Threads help here because file reads and NumPy's arithmetic release the interpreter lock.
    """
    remaining = iter(items)
    pending: deque[Future[Result]] = deque()
    try:
        pending.extend(pool.submit(function, item) for item in islice(remaining, ahead))
        while pending:
            result = pending.popleft().result()
            pending.extend(pool.submit(function, item) for item in islice(remaining, 1))
            yield result
    finally:
        for future in pending:
            future.cancel()
        wait(pending)


def _rounded_bytes(stack: FileStack, combine: Combine, dtype: str, piece: slice) -> memoryview:
    rounded = narrow(combine(piece), dtype)
    if rounded is None:
        for model in range(len(stack.shares)):
            stack.value(model, piece)  # raises if the model itself holds a NaN or an infinity
        raise UserError(f"the average of tensor '{stack.name}' overflows {dtype}")
    return rounded.data.cast("B")
