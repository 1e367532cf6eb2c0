"""Writes tensors in the safetensors format directly from memory.

The library's own writer copies each tensor twice first. This one writes the same bytes
(https://huggingface.co/docs/safetensors).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch

from results.checkpoints.streaming_hash import write_hashed
from results.checkpoints.tensor_layout import PlannedTensor, header_bytes

DTYPE_NAMES = {
    torch.uint64: "U64",
    torch.int64: "I64",
    torch.float64: "F64",
    torch.complex64: "C64",
    torch.float32: "F32",
    torch.uint32: "U32",
    torch.int32: "I32",
    torch.bfloat16: "BF16",
    torch.float16: "F16",
    torch.uint16: "U16",
    torch.int16: "I16",
    torch.float8_e5m2fnuz: "F8_E5M2FNUZ",
    torch.float8_e4m3fnuz: "F8_E4M3FNUZ",
    torch.float8_e8m0fnu: "F8_E8M0",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
"""Names in the format, in the order in which the library writes them: wide dtypes first, so that
each tensor begins at a multiple of its size."""
_ORDER = {dtype: place for place, dtype in enumerate(DTYPE_NAMES)}


def write_tensors(
    path: Path, tensors: Mapping[str, torch.Tensor], metadata: Mapping[str, str] | None = None
) -> None:
    """Write a safetensors file into a checkpoint. A large file is hashed while it is written.

    Args:
        path: in the folder of a checkpoint that is being saved.
        tensors: by name; dense, on any device. Tensors that share memory are written separately.
        metadata: free-form entries of the file's header.

    Raises:
        ValueError: the format has no such dtype.
        OSError: the disk is full, or broken.
    """
    for name, tensor in tensors.items():
        if tensor.dtype not in DTYPE_NAMES:
            raise ValueError(f"safetensors cannot hold '{name}': it is {tensor.dtype}")
    names = sorted(tensors, key=lambda name: (_ORDER[tensors[name].dtype], name))
    found = [(name, tensors[name]) for name in names]
    planned = {n: PlannedTensor(DTYPE_NAMES[t.dtype], tuple(t.shape), t.nbytes) for n, t in found}
    head = header_bytes(planned, dict(metadata or {}))
    write_hashed(path, [memoryview(head), *(tensor_bytes(tensors[name]) for name in names)])


def tensor_bytes(tensor: torch.Tensor) -> memoryview:
    """A tensor's elements in C order, without a copy if they are in C order already."""
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    if not flat.numel():
        return memoryview(b"")  # an empty tensor may have any strides
    return flat.view(torch.uint8).numpy().data
