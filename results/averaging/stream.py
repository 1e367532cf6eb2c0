"""Average model files into a model file, in memory that does not grow with the models."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from results.averaging.adapters import Adapters
from results.averaging.mean import Weighted
from results.averaging.method import Method
from results.averaging.numerics import DTYPES, STORED, item_bytes
from results.averaging.stack import GRAIN, ModelFiles
from results.averaging.tensor_average import PIECES_PER_TASK, TASKS_AHEAD, TensorAverager
from results.checkpoints.tensor_layout import (
    INDEX,
    PlannedTensor,
    TensorLayout,
    common_metadata,
    header_bytes,
    layout_mismatch,
    read_layout,
    start_mismatch,
)
from results.records.machines import available_cpus
from results.storage.atomic import fsync_dir, write_atomic
from search_spaces.errors import UserError, suggest

MAX_MEMORY = 64 << 20
"""Default limit of the bytes that an average holds at once."""

MAX_PIECE = 1 << 16
"""Largest number of elements in a piece: its sum, 512 KiB, fits the cache of a processor core."""
_SAMPLE = 1 << 12
"""Bytes of each tensor that are read to tell models apart."""
_OWN_BUFFERS = 5
"""Arrays of piece size beside the method's: raw bytes, value, base, and two to round."""


@dataclass(frozen=True)
class Averaged:
    """The written files.

    Attributes:
        files: the files that hold tensors.
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
    """Write the average of models, tensor by tensor; `results.averaging` states the rules.

    Args:
        sources: safetensors files, or indexes of shards, with the same tensors.
        target: written atomically; shards and their index are named after it.
        weights: one per source, at least 0 and not all 0; only their ratios matter. Default: equal.
        method: of averaging; default: the weighted mean.
        base: the weights from which the models started, for methods that need them.
        dtype: format of the result's float tensors, from `DTYPES`; default: as in the sources.
        max_memory: bytes to hold at once.
        max_shard: bytes of one file of the result; default: one file of any size.
        digests: SHA-256 of each source in hex, if known; saves reading the sources once more.

    Raises:
        UserError: sources that do not fit together, a NaN or an infinity in one of them, a result
            too large for its format, or too little memory; the message names file and tensor.
    """
    method = method or Weighted()
    shares = method.shares(len(sources), weights)
    layouts, start = _read_models(sources, method, base)
    # The order of the models depends on their content, because paths are arbitrary; the one with
    # the largest share comes first, because the mean is taken over the differences from the first.
    keys = digests or _content_keys(layouts)
    order = sorted(range(len(layouts)), key=lambda i: (-shares[i], keys[i]))
    models = ModelFiles([layouts[i] for i in order], [shares[i] for i in order], start)
    if dtype is not None and dtype not in DTYPES:
        raise UserError(f"no float format '{dtype}'{suggest(dtype, DTYPES)}")
    plan = plan_output(models.layouts[0], DTYPES[dtype] if dtype else None)
    adapters = Adapters(models, plan, method, max_memory)
    piece_size, threads = _piece_size_and_threads(method, len(sources), max_memory)
    metadata = common_metadata([layout.metadata for layout in models.layouts])
    with ThreadPoolExecutor(threads) as pool:
        averager = TensorAverager(models, method, plan, adapters, piece_size, threads, pool)
        files = write_model(plan, averager.pieces, target, metadata, max_shard)
    return Averaged(tuple(files), adapters.rank_loss)


def _read_models(
    sources: Sequence[Path], method: Method, base: Path | None
) -> tuple[list[TensorLayout], TensorLayout | None]:
    """Read the layouts of the models and of their base, and check that they fit together."""
    if method.needs_base and base is None:
        raise UserError(f"method {method.name()} needs the weights from which the models started")
    start = read_layout(base) if method.needs_base and base else None
    layouts = [read_layout(path) for path in sources]
    for other in layouts[1:]:
        if reason := layout_mismatch(layouts[0], other):
            raise UserError(f"{sources[0]} and {other.path} cannot be averaged: {reason}")
    if start and (reason := start_mismatch(layouts[0], start)):
        raise UserError(f"{sources[0]} cannot have started from {start.path}: {reason}")
    return layouts, start


def _piece_size_and_threads(method: Method, models: int, max_memory: int) -> tuple[int, int]:
    """Elements of a piece, and number of threads, such that all their arrays fit the memory.

    Only means are computed by several threads: other methods read a whole tensor first.
    """
    row = 8 * (method.num_buffers(models) + _OWN_BUFFERS)
    piece_size = min(MAX_PIECE, max_memory // row) // GRAIN * GRAIN
    if not piece_size:
        raise UserError(
            f"an average of {models} models by method {method.name()} needs at least "
            f"{row * GRAIN / 1e6:.1f} MB of memory, but the limit is {max_memory / 1e6:.1f} MB"
        )
    of_one = piece_size * (row + 8 * PIECES_PER_TASK * TASKS_AHEAD)
    threads = max(1, min(available_cpus(), max_memory // of_one)) if method.linear else 1
    return piece_size, threads


def _content_keys(layouts: Sequence[TensorLayout]) -> list[str]:
    """A key per model: the digest of a sample, and of all bytes where samples are equal."""
    samples = []
    for layout in layouts:
        digest = hashlib.sha256()
        for tensor in layout.tensors.values():
            with open(tensor.file, "rb") as f:
                digest.update(
                    os.pread(f.fileno(), min(_SAMPLE, tensor.end - tensor.start), tensor.start)
                )
        samples.append(digest.hexdigest())
    twins = {sample for sample in samples if samples.count(sample) > 1}
    return [s + _digest(x) if s in twins else s for s, x in zip(samples, layouts, strict=True)]


def _digest(layout: TensorLayout) -> str:
    digest = hashlib.sha256()
    for path in layout.files:
        with open(path, "rb") as f:
            digest.update(hashlib.file_digest(f, "sha256").digest())
    return digest.hexdigest()


PiecesOf = Callable[[str], Iterable[bytes | memoryview]]


def plan_output(layout: TensorLayout, dtype: str | None) -> dict[str, PlannedTensor]:
    """The tensors to write: those of a model, with its floats in `dtype` if one is given."""
    plan = {}
    for name, tensor in layout.tensors.items():
        if dtype is not None and tensor.dtype in STORED:
            plan[name] = PlannedTensor(dtype, tensor.shape, tensor.size * item_bytes(dtype))
        else:
            plan[name] = PlannedTensor(tensor.dtype, tensor.shape, tensor.end - tensor.start)
    return plan


def write_model(
    plan: Mapping[str, PlannedTensor],
    pieces: PiecesOf,
    target: Path,
    metadata: dict[str, str],
    max_shard: int | None,
) -> list[Path]:
    """Write a model; each file has a temporary name until it is complete, the index comes last.

    Args:
        plan: every tensor, in order.
        pieces: called with a tensor's name; returns its bytes in pieces.
        target: path of a single file; shards are named after it, as `transformers` does.
        metadata: for the header of each file.
        max_shard: largest number of tensor bytes in a file; a tensor that is larger has a file of
            its own. None: one file.

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


def _split(
    plan: Mapping[str, PlannedTensor], max_shard: int | None
) -> list[dict[str, PlannedTensor]]:
    shards: list[dict[str, PlannedTensor]] = [{}]
    size = 0
    for name, tensor in plan.items():
        if max_shard is not None and shards[-1] and size + tensor.bytes > max_shard:
            shards.append({})
            size = 0
        shards[-1][name] = tensor
        size += tensor.bytes
    return shards


def _write_file(
    shard: dict[str, PlannedTensor], pieces: PiecesOf, target: Path, metadata: dict[str, str]
) -> None:
    with _replace_when_complete(target) as out:
        out.write(header_bytes(shard, metadata))
        for name in shard:
            _write_pieces(out, pieces(name))


def _write_pieces(out: BinaryIO, pieces: Iterable[bytes | memoryview]) -> None:
    """A function of its own: its locals free the last piece before the next tensor begins."""
    for piece in pieces:
        out.write(piece)


@contextmanager
def _replace_when_complete(target: Path) -> Iterator[BinaryIO]:
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
