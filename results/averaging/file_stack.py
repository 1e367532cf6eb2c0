"""The two ends of an average: tensors read in pieces, and files written in pieces."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from results.averaging.numerics import STORED, item_bytes, widen
from results.averaging.stack import Stack
from results.checkpoints.tensor_layout import INDEX, Layout, PlannedTensor, header_bytes
from results.storage.atomic import fsync_dir, write_atomic
from search_spaces.errors import UserError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from results.averaging.numerics import Floats


class ReadBuffers:
    """Memory that is taken once, and used for every tensor of every model."""

    def __init__(self, step: int) -> None:
        import numpy as np

        self.step = step
        self.raw = bytearray(8 * step)
        self.value = np.empty(step)
        self.base = np.empty(step)


class FileStack(Stack):
    """A tensor that is float in all models, read from their files."""

    def __init__(
        self,
        name: str,
        layouts: Sequence[Layout],
        base: Layout | None,
        shares: Sequence[float],
        buffers: ReadBuffers,
    ) -> None:
        super().__init__(name, layouts[0].tensors[name].size, shares, buffers.step)
        self._layouts, self._start, self._buffers = layouts, base, buffers
        self.sums_are_exact = layouts[0].tensors[name].dtype != "F64"
        self._files = ExitStack()
        self._open: dict[Path, int] = {}
        self._base_at = -1

    def __enter__(self) -> FileStack:
        return self

    def __exit__(self, *_: object) -> None:
        self._files.close()

    def value(self, model: int, piece: slice) -> Floats:
        """See the base class.

        Raises:
            UserError: a NaN or an infinity, or a file that shrank.
        """
        return self._finite(self._layouts[model], piece, self._buffers.value)

    def stored(self, model: int, piece: slice) -> Floats:
        """See the base class."""
        return self._floats(self._layouts[model], piece, self._buffers.value)

    def add(self, model: int, piece: slice, to: Floats) -> None:
        """Without a copy in float64; see the base class."""
        if (layout := self._layouts[model]).tensors[self.name].dtype == "BF16":
            super().add(model, piece, to)
        else:
            to += self._raw(layout, piece)

    def base(self, piece: slice) -> Floats:
        """See the base class."""
        into = self._buffers.base
        if self._base_at == piece.start:
            return into[: piece.stop - piece.start]
        assert self._start is not None
        self._base_at = piece.start
        return self._finite(self._start, piece, into)

    def _finite(self, layout: Layout, piece: slice, into: Floats) -> Floats:
        import numpy as np

        values = self._floats(layout, piece, into)
        if not np.isfinite(values).all():
            raise UserError(f"{layout.path}: tensor '{self.name}' holds a NaN or an infinity")
        return values

    def _floats(self, layout: Layout, piece: slice, into: Floats) -> Floats:
        values = into[: piece.stop - piece.start]
        widen(self._raw(layout, piece), values)
        return values

    def _raw(self, layout: Layout, piece: slice) -> NDArray[Any]:
        import numpy as np

        stored = STORED[layout.tensors[self.name].dtype]
        width = int(stored[-1])
        size = (piece.stop - piece.start) * width
        return np.frombuffer(self.bytes_of(layout, piece.start * width, size), stored)

    def bytes_of(self, layout: Layout, offset: int, size: int) -> memoryview:
        """Bytes of the tensor in one model; the next call overwrites them."""
        tensor = layout.tensors[self.name]
        if tensor.file not in self._open:
            self._open[tensor.file] = os.open(tensor.file, os.O_RDONLY)
            self._files.callback(os.close, self._open[tensor.file])
        view = memoryview(self._buffers.raw)[:size]
        done = 0
        while done < size:
            got = os.preadv(self._open[tensor.file], [view[done:]], tensor.start + offset + done)
            if not got:
                raise UserError(f"{tensor.file}: shrank while it was read")
            done += got
        return view


def planned(layout: Layout, dtype: str | None) -> dict[str, PlannedTensor]:
    """What is to be written: the tensors of a model, its floats in another format if asked."""
    plan = {}
    for name, tensor in layout.tensors.items():
        if dtype is not None and tensor.dtype in STORED:
            plan[name] = PlannedTensor(dtype, tensor.shape, tensor.size * item_bytes(dtype))
        else:
            plan[name] = PlannedTensor(tensor.dtype, tensor.shape, tensor.end - tensor.start)
    return plan


def write_model(
    plan: Mapping[str, PlannedTensor],
    pieces: Any,
    target: Path,
    metadata: dict[str, str],
    max_shard: int | None,
) -> list[Path]:
    """Write a model, each file under a name of its own until it is whole; the index comes last.

    Args:
        plan: every tensor, in order.
        pieces: called with a tensor's name; gives its bytes.
        target: of a single file; shards are named after it, as `transformers` does.
        metadata: of each file.
        max_shard: bytes of tensors in a file; a larger tensor has one for itself. None: one file.

    Returns:
        The files that hold tensors.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    shards = _split(plan, max_shard)
    if len(shards) == 1:
        _write_file(shards[0], pieces, target, metadata)
        return [target]
    files, where = [], {}
    for number, shard in enumerate(shards, 1):
        stem = f"{target.stem}-{number:05d}-of-{len(shards):05d}"
        files.append(target.with_name(f"{stem}{target.suffix}"))
        _write_file(shard, pieces, files[-1], metadata)
        where.update(dict.fromkeys(shard, files[-1].name))
    total = sum(tensor.bytes for tensor in plan.values())
    index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(where.items()))}
    write_atomic(target.with_name(f"{target.name}{INDEX}"), json.dumps(index, indent=1).encode())
    return files


def _split(plan: Mapping[str, PlannedTensor], most: int | None) -> list[dict[str, PlannedTensor]]:
    shards: list[dict[str, PlannedTensor]] = [{}]
    size = 0
    for name, tensor in plan.items():
        if most is not None and shards[-1] and size + tensor.bytes > most:
            shards.append({})
            size = 0
        shards[-1][name] = tensor
        size += tensor.bytes
    return shards


def _write_file(
    shard: dict[str, PlannedTensor], pieces: Any, target: Path, metadata: dict[str, str]
) -> None:
    with _replacing(target) as out:
        out.write(header_bytes(shard, metadata))
        for name in shard:
            _write_all(out, pieces(name))


def _write_all(out: BinaryIO, pieces: Iterable[Any]) -> None:
    for piece in pieces:
        out.write(piece)


@contextmanager
def _replacing(target: Path) -> Iterator[BinaryIO]:
    tmp = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        with open(tmp, "wb") as out:
            yield out
            out.flush()
            os.fsync(out.fileno())
        os.replace(tmp, target)
    finally:
        tmp.unlink(missing_ok=True)
    fsync_dir(target.parent)
