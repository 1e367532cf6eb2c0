"""Where each tensor lies in a safetensors file, so that files can be streamed in pieces.

The format is 8 bytes of header length (little endian), a JSON header, then the tensors' bytes:
https://huggingface.co/docs/safetensors. The library reads and writes whole tensors only.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from search_spaces.errors import UserError

_ITEM_BITS = {"F64": 64, "F32": 32, "F16": 16, "BF16": 16}
_MAX_HEADER = 100_000_000  # bytes; the library refuses longer ones too


@dataclass(frozen=True)
class Tensor:
    """One tensor: dtype as safetensors names it, its bytes from `start` to `end` of the file."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int


@dataclass(frozen=True)
class Layout:
    """The tensors of a file in the order of their bytes, and the file's free-form metadata."""

    path: Path
    tensors: dict[str, Tensor]
    metadata: dict[str, str]


def read_layout(path: Path) -> Layout:
    """Read the header of a safetensors file.

    Raises:
        UserError: the file is missing, or is no whole safetensors file.
    """
    try:
        with open(path, "rb") as f:
            length = int.from_bytes(f.read(8), "little")
            if length > _MAX_HEADER:
                raise ValueError(f"a header of {length} bytes")
            header: dict[str, Any] = json.loads(f.read(length))
        metadata = header.pop("__metadata__", {})
        tensors = {name: _tensor(entry, 8 + length) for name, entry in header.items()}
        end = max((t.end for t in tensors.values()), default=8 + length)
        if path.stat().st_size != end:
            raise ValueError(f"{path.stat().st_size} bytes instead of {end}")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as e:
        raise UserError(f"{path}: not a whole safetensors file ({e})") from e
    ordered = dict(sorted(tensors.items(), key=lambda item: (item[1].start, item[0])))
    return Layout(path, ordered, metadata)


def header_bytes(tensors: dict[str, Tensor], metadata: dict[str, str]) -> bytes:
    """Head of a file that holds these tensors one after another, in this order."""
    header: dict[str, Any] = {"__metadata__": metadata} if metadata else {}
    offset = 0
    for name, tensor in tensors.items():
        end = offset + tensor.end - tensor.start
        header[name] = {
            "dtype": tensor.dtype,
            "shape": list(tensor.shape),
            "data_offsets": [offset, end],
        }
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # the tensors start at a multiple of 8, for readers that map
    return len(text).to_bytes(8, "little") + text


def difference(first: Layout, other: Layout) -> str | None:
    """Why two files cannot be averaged; None when names, shapes and dtypes agree."""
    for name in [*first.tensors, *other.tensors]:
        if name not in other.tensors or name not in first.tensors:
            return f"tensor '{name}' is in one of them only"
        a, b = first.tensors[name], other.tensors[name]
        if a.shape != b.shape:
            return f"tensor '{name}' is {list(a.shape)} in one and {list(b.shape)} in the other"
        if a.dtype != b.dtype:
            return f"tensor '{name}' is {a.dtype} in one and {b.dtype} in the other"
    return None


def _tensor(entry: dict[str, Any], base: int) -> Tensor:
    start, end = entry["data_offsets"]
    tensor = Tensor(str(entry["dtype"]), tuple(entry["shape"]), base + start, base + end)
    bits = _ITEM_BITS.get(tensor.dtype)
    if not 0 <= start <= end or (bits and end - start != math.prod(tensor.shape) * bits // 8):
        raise ValueError(f"{end - start} bytes for {tensor.dtype}{list(tensor.shape)}")
    return tensor
