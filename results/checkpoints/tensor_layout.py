"""Byte positions of the tensors in a model's safetensors files, to read the files in pieces.

The format is 8 bytes of header length (little endian), a JSON header, then the tensors' bytes:
https://huggingface.co/docs/safetensors. The library itself reads and writes whole tensors only. A
model of several files ("shards") has an index in the format of `transformers`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from search_spaces.errors import UserError
from search_spaces.files import parse_json, read_regular

_ITEM_BITS = {"F64": 64, "F32": 32, "F16": 16, "BF16": 16}
_MAX_HEADER = 100_000_000  # bytes; the same limit as in the library

INDEX = ".index.json"
"""Suffix of the file that maps each tensor to its shard."""


@dataclass(frozen=True)
class Tensor:
    """One tensor: safetensors dtype, shape, and its bytes from `start` to `end` of its file."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int
    file: Path

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class TensorLayout:
    """The tensors of a model, in the order of their bytes, and the free-form metadata.

    Attributes:
        path: the file, or the index of the shards.
        metadata: of the file; of shards only the entries that are the same in all.
    """

    path: Path
    tensors: dict[str, Tensor]
    metadata: dict[str, str]

    @property
    def files(self) -> list[Path]:
        """The file, or the shards."""
        return sorted({tensor.file for tensor in self.tensors.values()}) or [self.path]


def weights_file(folder: Path, name: str = "model.safetensors") -> Path:
    """The weights of a model in a folder: the file, or the index of its shards."""
    index = folder / f"{name}{INDEX}"
    return index if index.is_file() and not (folder / name).is_file() else folder / name


def read_layout(path: Path) -> TensorLayout:
    """Read the header of a safetensors file, or the headers of all shards of an index.

    Raises:
        UserError: a file is missing, is not a complete safetensors file, or contradicts the index.
    """
    return _shards(path) if path.name.endswith(INDEX) else _file(path)


def common_metadata(metadata: Sequence[dict[str, str]]) -> dict[str, str]:
    """The entries that are the same in all of them."""
    first, *others = metadata
    return {k: v for k, v in first.items() if all(other.get(k) == v for other in others)}


def _shards(path: Path) -> TensorLayout:
    try:
        names: dict[str, str] = parse_json(read_regular(path))["weight_map"]
        if any(Path(file).name != file for file in names.values()):
            raise ValueError("a shard outside of the folder")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as e:
        raise UserError(f"{path}: not an index of safetensors files ({e})") from e
    shards = [_file(path.with_name(file)) for file in sorted(set(names.values()))]
    tensors = {name: tensor for shard in shards for name, tensor in shard.tensors.items()}
    if {name: tensor.file.name for name, tensor in tensors.items()} != names:
        raise UserError(f"{path}: the shards do not hold the tensors that it names")
    return TensorLayout(path, tensors, common_metadata([shard.metadata for shard in shards]))


def _file(path: Path) -> TensorLayout:
    try:
        with open(path, "rb") as f:
            length = int.from_bytes(f.read(8), "little")
            if length > _MAX_HEADER:
                raise ValueError(f"a header of {length} bytes")
            header: dict[str, Any] = parse_json(f.read(length))
        metadata = header.pop("__metadata__", {})
        tensors = {name: _tensor(entry, 8 + length, path) for name, entry in header.items()}
        end = max((t.end for t in tensors.values()), default=8 + length)
        if path.stat().st_size != end:
            raise ValueError(f"{path.stat().st_size} bytes instead of {end}")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as e:
        raise UserError(f"{path}: not a complete safetensors file ({e})") from e
    ordered = dict(sorted(tensors.items(), key=lambda item: (item[1].start, item[0])))
    return TensorLayout(path, ordered, metadata)


@dataclass(frozen=True)
class PlannedTensor:
    """A tensor to write: dtype, shape, and number of bytes."""

    dtype: str
    shape: tuple[int, ...]
    bytes: int


def header_bytes(tensors: Mapping[str, PlannedTensor], metadata: dict[str, str]) -> bytes:
    """Header of a file with these tensors one after another, in this order."""
    header: dict[str, Any] = {"__metadata__": metadata} if metadata else {}
    offset = 0
    for name, tensor in tensors.items():
        end = offset + tensor.bytes
        header[name] = {
            "dtype": tensor.dtype,
            "shape": list(tensor.shape),
            "data_offsets": [offset, end],
        }
        offset = end
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)  # tensors start at a multiple of 8 bytes, for memory mapping
    return len(text).to_bytes(8, "little") + text


def layout_mismatch(first: TensorLayout, other: TensorLayout) -> str | None:
    """Why two models cannot be averaged; None when names, shapes and dtypes agree."""
    for name in [*first.tensors, *other.tensors]:
        if name not in other.tensors or name not in first.tensors:
            return f"tensor '{name}' is in one of them only"
        a, b = first.tensors[name], other.tensors[name]
        if a.shape != b.shape:
            return f"tensor '{name}' is {list(a.shape)} in one and {list(b.shape)} in the other"
        if a.dtype != b.dtype:
            return f"tensor '{name}' is {a.dtype} in one and {b.dtype} in the other"
    return None


def start_mismatch(model: TensorLayout, start: TensorLayout) -> str | None:
    """Why a model cannot have been trained from `start`; None if it can.

    The start may have additional tensors, and floats of another format.
    """
    for name, tensor in model.tensors.items():
        found = start.tensors.get(name)
        if found is None:
            return f"it has no tensor '{name}'"
        if found.shape != tensor.shape:
            return f"tensor '{name}' is {list(found.shape)} there and {list(tensor.shape)} here"
        if (found.dtype in _ITEM_BITS) != (tensor.dtype in _ITEM_BITS):
            return f"tensor '{name}' is {found.dtype} there and {tensor.dtype} here"
    return None


def _tensor(entry: dict[str, Any], base: int, file: Path) -> Tensor:
    start, end = entry["data_offsets"]
    tensor = Tensor(str(entry["dtype"]), tuple(entry["shape"]), base + start, base + end, file)
    bits = _ITEM_BITS.get(tensor.dtype)
    if not 0 <= start <= end or (bits and end - start != math.prod(tensor.shape) * bits // 8):
        raise ValueError(f"{end - start} bytes for {tensor.dtype}{list(tensor.shape)}")
    return tensor
