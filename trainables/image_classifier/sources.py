"""Reads labelled images from where they are, one after another."""

from __future__ import annotations

import glob
import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from trainables.base import Split
from trainables.common.parquet import is_text
from trainables.common.split_names import split_of
from trainables.image_classifier.data_config import ImageDataConfig
from trainables.image_classifier.folder import ImageFile, image_files

Pixels = npt.NDArray[np.uint8]
"""One image, [height, width, channels]."""
ANY = frozenset(Split)
CIFAR_ROW = 1 + 3 * 32 * 32
_WIDE = frozenset(("PNG", "PPM"))
"""Formats whose 32-bit values are those of 16 bits."""


@dataclass(frozen=True)
class RawImage:
    """An image that is not decoded yet.

    Attributes:
        place: file and row, for messages.
        splits: those that it may be in.
        decode: its pixels, or a `ValueError` or `OSError` that says why there are none.
    """

    place: str
    label: int | str
    splits: frozenset[Split]
    decode: Callable[[], Pixels]


@dataclass(frozen=True)
class Unreadable:
    """A part of the data that cannot be read: where it is, and why."""

    problem: str


def problems(data: ImageDataConfig) -> list[str]:
    """What the data lacks, as far as names, sizes and columns show it, a line each."""
    match data.source:
        case "cifar10":
            return _cifar_problems(Path(data.path[0]))
        case "parquet":
            found = [line for g in data.all_paths for line in _parquet_problems(g, data)]
            return [*found, *_held_out_problems(data)]
        case "folder":
            return _folder_problems(Path(data.path[0]), data)
    return []


def files(data: ImageDataConfig) -> list[Path]:
    """All files of the images, in a fixed order."""
    match data.source:
        case "cifar10":
            return sorted(Path(data.path[0]).glob("*_batch*.bin"))
        case "parquet":
            return [file for pattern in data.all_paths for file in _matches(pattern)]
        case "folder":
            found = image_files(Path(data.path[0]))
            return [image.path for image in found if isinstance(image, ImageFile)]
    return []


def read(data: ImageDataConfig) -> Iterator[RawImage | Unreadable]:
    """Every image of the source, always in the same order."""
    match data.source:
        case "digits":
            yield from _digits()
        case "cifar10":
            for file in files(data):
                yield from _cifar(file)
        case "parquet":
            yield from _parquets(data)
        case "folder":
            yield from map(_listed, image_files(Path(data.path[0])))


def class_names(data: ImageDataConfig) -> list[str]:
    """Names of the classes 0, 1, …, if the source has them apart from its labels."""
    file = Path(data.path[0], "batches.meta.txt") if data.source == "cifar10" else None
    return file.read_text().split() if file is not None and file.exists() else []


def _digits() -> Iterator[RawImage]:
    from sklearn.datasets import load_digits

    found = load_digits()
    images = np.round(found.images * (255 / 16)).astype(np.uint8)[..., None]
    for row, (pixels, label) in enumerate(zip(images, found.target.tolist(), strict=True)):
        yield RawImage(f"digits: row {row}", label, ANY, partial(np.array, pixels))


def _cifar_problems(folder: Path) -> list[str]:
    found = sorted(folder.glob("data_batch*.bin"))
    if not found:
        return [f"no data_batch_*.bin in {folder} (the binary version of CIFAR-10)"]
    wrong = []
    for file in [*found, *folder.glob("test_batch.bin")]:
        rows, rest = divmod(file.stat().st_size, CIFAR_ROW)
        if rest or not rows:
            wrong.append(f"{file}: row {rows} is cut off: a row has {CIFAR_ROW} bytes, not {rest}")
            continue
        labels = np.memmap(file, np.uint8, "r").reshape(-1, CIFAR_ROW)[:, 0]
        if (bad := np.flatnonzero(labels > 9)).size:
            wrong.append(f"{file}: row {bad[0]}: label {labels[bad[0]]}, but classes are 0 to 9")
    return wrong


def _cifar(file: Path) -> Iterator[RawImage]:
    table = np.memmap(file, np.uint8, "r").reshape(-1, CIFAR_ROW)
    test = file.name == "test_batch.bin"
    alone = not file.with_name("test_batch.bin").exists()
    splits = frozenset((Split.TEST,)) if test else ANY if alone else ANY - {Split.TEST}
    for row, record in enumerate(table):
        pixels = record[1:].reshape(3, 32, 32).transpose(1, 2, 0)
        yield RawImage(f"{file}: row {row}", int(record[0]), splits, partial(np.array, pixels))


def _matches(pattern: str) -> list[Path]:
    found = (Path(f) for f in glob.glob(str(Path(pattern).expanduser()), recursive=True))
    return sorted(f for f in found if f.is_file())


def _held_out_problems(data: ImageDataConfig) -> Iterator[str]:
    """Files of `path` that another key, or their name, holds out."""
    train = [file for pattern in data.path for file in _matches(pattern)]
    names = {file: split_of(file) for file in train}
    for key, split in (("selection_path", Split.SELECTION), ("test_path", Split.TEST)):
        given = {file for pattern in getattr(data, key) for file in _matches(pattern)}
        for file in train:
            if file in given:
                yield f"{file}: is in data.path and data.{key}"
            elif names[file] is split and Split.TRAIN in names.values():
                yield f"{file}: is in data.path, and its name says {split}; give it as data.{key}"


def _parquet_problems(pattern: str, data: ImageDataConfig) -> list[str]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    found = _matches(pattern)
    if not found:
        return [f"no file matches {pattern} (from {Path.cwd()})"]
    wrong = []
    for file in found:
        try:
            schema = pq.read_schema(file)
        except (pa.ArrowException, OSError) as e:
            wrong.append(f"{file}: not a Parquet file ({_short(e)})")
            continue
        wrong += [f"{file}: {line}" for line in _column_problems(schema, data)]
    return wrong


def _column_problems(schema: Any, data: ImageDataConfig) -> Iterator[str]:
    from pyarrow import types

    have = ", ".join(schema.names)
    for key, name in (("image", data.image_column), ("label", data.label_column)):
        if name not in schema.names:
            yield f"no column '{name}' (set data.{key}_column; it has {have})"
            continue
        kind = schema.field(name).type
        if key == "label" and not (types.is_integer(kind) or is_text(kind)):
            yield f"column '{name}' has {kind}; labels are whole numbers or texts"
        if key == "image" and not _holds_images(kind):
            yield f"column '{name}' has {kind}; images are bytes, {{bytes: …}} or nested lists"


def _holds_images(kind: Any) -> bool:
    from pyarrow import types

    if types.is_struct(kind):
        return any(field.name == "bytes" for field in kind)
    nested = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    if nested:  # a flat list has no height
        return not types.is_integer(kind.value_type) and not types.is_floating(kind.value_type)
    return bool(types.is_binary(kind) or types.is_large_binary(kind))


def _parquets(data: ImageDataConfig) -> Iterator[RawImage | Unreadable]:
    given = {Split.SELECTION: data.selection_path, Split.TEST: data.test_path}
    rest = ANY - {split for split, paths in given.items() if paths}
    parts = [(rest, data.path), *((frozenset((s,)), paths) for s, paths in given.items())]
    for splits, paths in parts:
        for file in (file for pattern in paths for file in _matches(pattern)):
            yield from _parquet(file, data, splits)


def _parquet(
    file: Path, data: ImageDataConfig, splits: frozenset[Split]
) -> Iterator[RawImage | Unreadable]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = [data.image_column, data.label_column]
    with pq.ParquetFile(file, page_checksum_verification=True) as table:
        row = 0
        for group in range(table.num_row_groups):
            try:
                for batch in table.iter_batches(256, row_groups=[group], columns=columns):
                    images, labels = (batch.column(name).to_pylist() for name in columns)
                    for at, (image, label) in enumerate(zip(images, labels, strict=True), row):
                        yield _row(f"{file}: row {at}", image, label, splits)
                    row += len(images)
            except (pa.ArrowException, OSError) as e:
                yield Unreadable(f"{file}: row group {group}: cannot be read ({_short(e)})")
                row = sum(table.metadata.row_group(g).num_rows for g in range(group + 1))


def _row(
    place: str, image: Any, label: int | str | None, splits: frozenset[Split]
) -> RawImage | Unreadable:
    content = image.get("bytes") if isinstance(image, dict) else image
    if label is None or content is None:
        return Unreadable(f"{place}: no {'label' if label is None else 'image'}")
    if isinstance(content, bytes):
        return RawImage(place, label, splits, partial(_decoded, io.BytesIO(content)))
    return RawImage(place, label, splits, partial(_from_lists, content))


def _from_lists(rows: Any) -> Pixels:
    pixels = np.asarray(rows)  # a ValueError if the rows have different lengths
    if pixels.ndim == 2:
        pixels = pixels[..., None]
    if pixels.ndim != 3 or pixels.dtype.kind not in "iuf" or pixels.shape[2] not in (1, 3):
        shape = list(pixels.shape)
        raise ValueError(f"an image is [height][width] or [height][width][1 or 3], not {shape}")
    if not ((pixels >= 0) & (pixels <= 255) & (pixels % 1 == 0)).all():
        raise ValueError("pixels must be whole numbers of 0 to 255")
    return pixels.astype(np.uint8)


def _decoded(file: Any) -> Pixels:
    from PIL import Image, ImageOps

    with Image.open(file) as image:  # UnidentifiedImageError is an OSError
        turned: Any = ImageOps.exif_transpose(image)
        if turned.mode.startswith("I;16") or (turned.mode == "I" and image.format in _WIDE):
            wide = np.asarray(turned).astype(np.float64) / 257  # 65535 is white
            return wide.round().astype(np.uint8)[..., None]
        if turned.mode in ("I", "F"):
            kind = "32-bit" if turned.mode == "I" else "floating-point"
            raise ValueError(f"{kind} values have no known white; save it with 8 or 16 bits")
        grey = turned.mode in ("1", "L")
        found = np.asarray(turned.convert("L" if grey else "RGB"))
    return found[..., None] if grey else found


def _folder_problems(folder: Path, data: ImageDataConfig) -> list[str]:
    if not folder.is_dir():
        return [f"no such folder: {folder} (from {Path.cwd()})"]
    found = list(image_files(folder))
    wrong = [line for line in found if isinstance(line, str)]
    if wrong and data.on_bad_data == "fail":
        return [f"{wrong[0]}; move it, or skip such parts with data.on_bad_data: skip"]
    if len({image.label for image in found if isinstance(image, ImageFile)}) < 2:
        return [f"{folder}: images of at least two classes are needed, as {folder}/<class>/1.png"]
    return []


def _listed(image: ImageFile | str) -> RawImage | Unreadable:
    if isinstance(image, str):
        return Unreadable(image)
    return RawImage(str(image.path), image.label, image.splits, partial(_decoded, image.path))


def _short(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
