"""Tensors that several ranks have written, each its parts: read by any number of ranks.

    shards/<kind>_<rank>.safetensors

Each tensor of such a file is a block of a larger one. The header's metadata has, under `parts`, a
JSON object from the tensor's name to the shape of the whole and the block's offset in it, in
elements. A plain safetensors file is the same with blocks that are whole tensors.
"""

from __future__ import annotations

import json
import math
import shutil
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from results.checkpoints.commit import (
    MANIFEST,
    Checkpoint,
    CheckpointError,
    staged,
    verify,
    verify_all,
)
from results.checkpoints.tensor_layout import (
    PlannedTensor,
    Tensor,
    TensorLayout,
    header_bytes,
    read_layout,
    weights_file,
)
from results.trial_paths import TrialPaths
from search_spaces.errors import UserError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Bytes = npt.NDArray[np.uint8]


FOLDER = "shards"
"""Folder in a checkpoint that holds the files of all ranks."""
PARTS = "parts"
MODEL, OPTIMIZER = "model", "optimizer"
Place = tuple[Sequence[int], Sequence[int]]
"""Shape of a whole tensor, and offset of a block in it."""


def shard_file(folder: Path, kind: str, rank: int) -> Path:
    """The file of a rank in a checkpoint."""
    return folder / FOLDER / f"{kind}_{rank:05d}.safetensors"


def parts_metadata(places: Mapping[str, Place]) -> dict[str, str]:
    """Metadata of a file, from the place of each of its tensors."""
    return {PARTS: json.dumps({name: [list(s), list(o)] for name, (s, o) in places.items()})}


def is_sharded(folder: Path) -> bool:
    """Whether the model of a checkpoint is in shards."""
    return bool(_files(folder, MODEL))


def has_tensors(folder: Path, kind: str) -> bool:
    """Whether a checkpoint holds tensors of a kind, in shards or whole."""
    return weights_file(folder, f"{kind}.safetensors").exists() or bool(_files(folder, kind))


def _files(folder: Path, kind: str) -> list[Path]:
    return sorted((folder / FOLDER).glob(f"{kind}_*.safetensors"))


@dataclass(frozen=True)
class Block:
    """A part of a tensor: where its bytes are, and its offset and shape in the whole."""

    stored: Tensor
    offset: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of elements in each dimension."""
        return self.stored.shape


@dataclass(frozen=True)
class ShardedTensor:
    """A tensor in blocks that cover it: safetensors dtype, and shape."""

    dtype: str
    shape: tuple[int, ...]
    blocks: tuple[Block, ...]

    @property
    def item_bytes(self) -> int:
        """Bytes of an element."""
        first = self.blocks[0].stored
        return (first.end - first.start) // first.size if first.size else 0

    def read(
        self, offset: Sequence[int] | None = None, shape: Sequence[int] | None = None
    ) -> Bytes:
        """Bytes of the elements in a box, uint8 [*shape, bytes of an element]; default: of all.

        Only these bytes are read from the disk.
        """
        import numpy as np

        begin = tuple(offset) if offset is not None else (0,) * len(self.shape)
        size = tuple(shape) if shape is not None else self.shape
        found = np.empty((*size, self.item_bytes), np.uint8)
        for block in self.blocks:
            low = [max(a, b) for a, b in zip(begin, block.offset, strict=True)]
            ends = zip(begin, size, block.offset, block.shape, strict=True)
            high = [min(a + n, b + m) for a, n, b, m in ends]
            if all(a < b for a, b in zip(low, high, strict=True)):
                there = tuple(slice(a - o, b - o) for a, b, o in zip(low, high, begin, strict=True))
                here = zip(low, high, block.offset, strict=True)
                found[there] = _mapped(block.stored)[tuple(slice(a - o, b - o) for a, b, o in here)]
        return found


def _mapped(stored: Tensor) -> Bytes:
    """The bytes of a stored tensor, which are read from the disk when they are used."""
    import numpy as np

    item = (stored.end - stored.start) // stored.size
    return np.memmap(
        stored.file, np.uint8, mode="r", offset=stored.start, shape=(*stored.shape, item)
    )


def open_tensors(folder: Path, kind: str = MODEL) -> dict[str, ShardedTensor]:
    """The tensors of a checkpoint by name, in shards or whole.

    Raises:
        UserError: a file is missing or incomplete, or the blocks do not cover their tensors.
    """
    files = _files(folder, kind)
    blocks: dict[str, list[tuple[tuple[int, ...], Block]]] = defaultdict(list)
    for layout in map(read_layout, files or [weights_file(folder, f"{kind}.safetensors")]):
        for name, (whole, block) in _blocks(layout):
            blocks[name].append((whole, block))
    return {name: _checked(folder, name, found) for name, found in sorted(blocks.items())}


def _blocks(layout: TensorLayout) -> Iterable[tuple[str, tuple[tuple[int, ...], Block]]]:
    try:
        places: dict[str, Any] = json.loads(layout.metadata.get(PARTS, "{}"))
        for name, tensor in layout.tensors.items():
            whole, offset = places.get(name) or (tensor.shape, (0,) * len(tensor.shape))
            yield name, (tuple(map(int, whole)), Block(tensor, tuple(map(int, offset))))
    except (ValueError, TypeError, AttributeError) as e:
        raise UserError(f"{layout.path}: not the file of a rank ({e})") from e


def _checked(
    folder: Path, name: str, found: Sequence[tuple[tuple[int, ...], Block]]
) -> ShardedTensor:
    """The tensor of these blocks, which must cover it without overlap."""
    shapes, blocks = {whole for whole, _ in found}, [block for _, block in found]
    dtypes, whole = {block.stored.dtype for block in blocks}, found[0][0]
    fits = len(shapes) == len(dtypes) == 1 and all(_is_inside(block, whole) for block in blocks)
    apart = len({block.offset for block in blocks}) == len(blocks)
    if not fits or not apart or sum(b.stored.size for b in blocks) != math.prod(whole):
        raise UserError(f"{folder}: the parts of tensor '{name}' do not make a whole")
    return ShardedTensor(dtypes.pop(), whole, tuple(blocks))


def _is_inside(block: Block, whole: tuple[int, ...]) -> bool:
    if len(block.offset) != len(whole) or len(block.shape) != len(whole):
        return False
    ends = zip(block.offset, block.shape, whole, strict=True)
    return all(o >= 0 and o + n <= size for o, n, size in ends)


def write_whole(tensors: Mapping[str, ShardedTensor], target: Path) -> None:
    """Write tensors into one safetensors file, with one of them in memory at a time."""
    names = sorted(tensors, key=lambda name: (-tensors[name].item_bytes, name))
    sizes = {name: math.prod(t.shape) * t.item_bytes for name, t in tensors.items()}
    plan = {n: PlannedTensor(tensors[n].dtype, tensors[n].shape, sizes[n]) for n in names}
    with open(target, "wb") as out:
        out.write(header_bytes(plan, {"format": "pt"}))
        for name in names:
            out.write(tensors[name].read().data)


_LEFT_OUT = ("rng_", "progress.", "communication_", MANIFEST)
"""Begins of the names of files that only a training run reads."""


def whole_models(paths: TrialPaths) -> Iterator[Checkpoint | CheckpointError]:
    """The checkpoints of a trial as folders with `model.safetensors`, verified, newest first.

    The model of a sharded one is written to the trial's `models/` when it is asked for, tensor by
    tensor.
    """
    for found in verify_all(paths):
        if isinstance(found, Checkpoint) and is_sharded(found.folder):
            yield _whole(paths, found)
        else:
            yield found


def model_files(folder: Path) -> Iterator[Path]:
    """The files of a checkpoint, by name, without those that only a training run reads."""
    for file in sorted(folder.iterdir()):
        if file.is_file() and not file.name.startswith(_LEFT_OUT):
            yield file


def _whole(paths: TrialPaths, found: Checkpoint) -> Checkpoint:
    target = paths.model(found.step)
    with staged(target) as folder:
        for file in model_files(found.folder):
            shutil.copyfile(file, folder / file.name)
        write_whole(open_tensors(found.folder), folder / "model.safetensors")
    return Checkpoint(found.step, target, verify(target, hashes=False))
