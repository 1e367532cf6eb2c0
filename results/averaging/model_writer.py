"""Write the safetensors files of a model, tensor by tensor."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from results.averaging.numerics import STORED, item_bytes
from results.checkpoints.tensor_layout import INDEX, PlannedTensor, TensorLayout, header_bytes
from results.storage.atomic import fsync_dir, write_atomic

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
