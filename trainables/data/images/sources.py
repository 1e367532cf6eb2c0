"""Reads labelled images from where they are, one after another. A source is a line of `SOURCES`."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from trainables.base import Split
from trainables.data.bad_rows import BadRow
from trainables.data.images.config import ImageDataConfig
from trainables.data.images.folder import RawImage, image_files
from trainables.data.readers import (
    ColumnType,
    TableColumns,
    is_list,
    is_text,
    matching_files,
    path_problem,
    read_file,
    table_problems,
)
from trainables.data.splits import ANY, split_of

Pixels = npt.NDArray[np.uint8]
"""One image, [height, width, channels]."""
CIFAR_ROW = 1 + 3 * 32 * 32
_WIDE = frozenset(("PNG", "PPM"))
"""Formats whose 32-bit values are those of 16 bits."""


@dataclass(frozen=True)
class ImageSource:
    """A place of images.

    Attributes:
        files: all of them, in a fixed order.
        problems: what is missing, as far as names, sizes and columns show it, a line each.
        read: every image, always in the same order.
    """

    files: Callable[[ImageDataConfig], list[Path]]
    problems: Callable[[ImageDataConfig], Iterable[str]]
    read: Callable[[ImageDataConfig], Iterator[RawImage | BadRow]]


def _digits(data: ImageDataConfig) -> Iterator[RawImage]:
    from sklearn.datasets import load_digits

    found = load_digits()
    images = np.round(found.images * (255 / 16)).astype(np.uint8)[..., None]
    for row, (pixels, label) in enumerate(zip(images, found.target.tolist(), strict=True), 1):
        yield RawImage(f"digits: row {row}", label, ANY, pixels)


def _cifar_files(data: ImageDataConfig) -> list[Path]:
    return sorted(Path(data.path[0]).glob("*_batch*.bin"))


def _cifar_problems(data: ImageDataConfig) -> Iterator[str]:
    files = _cifar_files(data)
    if not any(file.name.startswith("data_batch") for file in files):
        yield f"no data_batch_*.bin in {data.path[0]} (the binary version of CIFAR-10)"
    for file in files:
        rows, rest = divmod(file.stat().st_size, CIFAR_ROW)
        if rest or not rows:
            yield f"{file}: row {rows + 1} is cut off: a row has {CIFAR_ROW} bytes, not {rest}"
            continue
        labels = np.memmap(file, np.uint8, "r").reshape(-1, CIFAR_ROW)[:, 0]
        if (bad := np.flatnonzero(labels > 9)).size:
            yield f"{file}: row {bad[0] + 1}: label {labels[bad[0]]}, but classes are 0 to 9"


def _cifar(data: ImageDataConfig) -> Iterator[RawImage]:
    files = _cifar_files(data)
    rest = ANY - {Split.TEST for file in files if file.name == "test_batch.bin"}
    for file in files:
        splits = frozenset((Split.TEST,)) if file.name == "test_batch.bin" else rest
        for row, record in enumerate(np.memmap(file, np.uint8, "r").reshape(-1, CIFAR_ROW), 1):
            pixels = record[1:].reshape(3, 32, 32).transpose(1, 2, 0)
            yield RawImage(f"{file}: row {row}", int(record[0]), splits, pixels)


def _tables(data: ImageDataConfig) -> list[Path]:
    return [file for pattern in data.all_paths for file in matching_files([pattern])]


def _table_problems(data: ImageDataConfig) -> Iterator[str]:
    yield from filter(None, map(path_problem, data.all_paths))
    for file in _tables(data):
        yield from table_problems(file, _columns(data))
    train = matching_files(data.path)
    names = {file: split_of(file) for file in train}
    for key, split in (("selection_path", Split.SELECTION), ("test_path", Split.TEST)):
        given = matching_files(getattr(data, key))
        for file in train:
            if file in given:
                yield f"{file}: is in data.path and data.{key}"
            elif names[file] is split and Split.TRAIN in names.values():
                yield f"{file}: is in data.path, and its name says {split}; give it as data.{key}"


def _columns(data: ImageDataConfig) -> TableColumns:
    images = ColumnType("bytes, {bytes: …} or nested lists", _holds_images)
    labels = ColumnType("whole numbers or texts", _holds_labels)
    types = {data.image_column: images, data.label_column: labels}
    return TableColumns(types, only=True, at_once=256)


def _holds_labels(kind: Any) -> bool:
    from pyarrow import types

    return bool(types.is_integer(kind)) or is_text(kind)


def _holds_images(kind: Any) -> bool:
    from pyarrow import types

    if types.is_struct(kind):
        return any(field.name == "bytes" for field in kind)
    if is_list(kind):  # a flat list has no height
        return not types.is_integer(kind.value_type) and not types.is_floating(kind.value_type)
    return bool(types.is_binary(kind) or types.is_large_binary(kind))


def _read_tables(data: ImageDataConfig) -> Iterator[RawImage | BadRow]:
    given = {Split.SELECTION: data.selection_path, Split.TEST: data.test_path}
    rest = ANY - {split for split, paths in given.items() if paths}
    for splits, paths in ((rest, data.path), *((frozenset((s,)), p) for s, p in given.items())):
        for file in (file for pattern in paths for file in matching_files([pattern])):
            for row in read_file(file, _columns(data), ".parquet"):
                yield row if isinstance(row, BadRow) else _image(*row, data, splits)


def _image(
    place: str, row: dict[str, Any], data: ImageDataConfig, splits: frozenset[Split]
) -> RawImage | BadRow:
    image, label = row[data.image_column], row[data.label_column]
    content = image.get("bytes") if isinstance(image, dict) else image
    if label is None or content is None:
        return BadRow(f"{place}: no {'label' if label is None else 'image'}")
    return RawImage(place, label, splits, content)


def decode(content: Any) -> Pixels:
    """The pixels of a `RawImage`.

    Raises:
        ValueError: there are none, and why; also an `OSError`, and others of Pillow.
    """
    if isinstance(content, Path | bytes):
        return _open_image(io.BytesIO(content) if isinstance(content, bytes) else content)
    if isinstance(content, np.ndarray):
        return content
    pixels = np.asarray(content)  # a ValueError if rows have different lengths
    if pixels.ndim == 2:
        pixels = pixels[..., None]
    if pixels.ndim != 3 or pixels.dtype.kind not in "iuf" or pixels.shape[2] not in (1, 3):
        shape = list(pixels.shape)
        raise ValueError(f"an image is [height][width] or [height][width][1 or 3], not {shape}")
    if not ((pixels >= 0) & (pixels <= 255) & (pixels % 1 == 0)).all():
        raise ValueError("pixels must be whole numbers of 0 to 255")
    return pixels.astype(np.uint8)


def _open_image(file: Any) -> Pixels:
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


def _folder(data: ImageDataConfig) -> Iterator[RawImage | BadRow]:
    return image_files(Path(data.path[0]))


def _folder_files(data: ImageDataConfig) -> list[Path]:
    return [image.content for image in _folder(data) if isinstance(image, RawImage)]


def _folder_problems(data: ImageDataConfig) -> Iterator[str]:
    folder = Path(data.path[0])
    if not folder.is_dir():
        yield f"no such folder: {folder} (from {Path.cwd()})"
        return
    labels = set()
    for image in image_files(folder):
        if isinstance(image, RawImage):
            labels.add(image.label)
        elif data.on_bad_data == "fail":
            yield f"{image.problem}; move it, or skip such parts with data.on_bad_data: skip"
            return
    if len(labels) < 2:
        yield f"{folder}: images of at least two classes are needed, as {folder}/<class>/1.png"


SOURCES: dict[str, ImageSource] = {
    "digits": ImageSource(lambda data: [], lambda data: [], _digits),
    "cifar10": ImageSource(_cifar_files, _cifar_problems, _cifar),
    "parquet": ImageSource(_tables, _table_problems, _read_tables),
    "folder": ImageSource(_folder_files, _folder_problems, _folder),
}
"""Value of `data.source` → where its images are."""


def problems(data: ImageDataConfig) -> list[str]:
    """What the data lacks, as far as names, sizes and columns show it, a line each."""
    return list(SOURCES[data.source].problems(data))
