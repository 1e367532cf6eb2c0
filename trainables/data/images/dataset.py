"""Images decoded once, into arrays that all trials and workers map into memory.

    <cache>/<key>/<split>.pixels   uint8 [images, channels, height, width], in C order
    <cache>/<key>/<split>.npy      labels, int64 [images]
    <cache>/<key>/meta.json        sizes, names of the classes, mean and deviation of the pixels

The key is a digest of names, sizes and times of the files, and of the settings. The first process
builds the folder under a lock and publishes it by one rename; the others wait.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from search_spaces.errors import UserError
from trainables.base import Split
from trainables.client import Rows
from trainables.data.bad_rows import BadRow, BadRows
from trainables.data.images.config import ImageDataConfig
from trainables.data.images.folder import RawImage
from trainables.data.images.sources import SOURCES, Pixels, decode, problems
from trainables.data.shared_folder import publish_settings
from trainables.data.splits import split_by_digest
from trainables.data.text.config import key_settings

VERSION = 2
"""Version of the arrays; raise it with any change of code that changes them."""
SHARE = 0.1
"""Fraction of the images in the selection split, and in the test split."""
AT_ONCE = 512
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Images:
    """A built cache folder."""

    folder: Path

    @cached_property
    def meta(self) -> dict[str, Any]:
        """`shape`, `classes`, `mean`, `std` (per channel, of 0 to 1), `images`, `content`."""
        return dict(json.loads((self.folder / "meta.json").read_text()))

    @property
    def classes(self) -> list[str]:
        """Names of the classes, in the order of the labels."""
        return list(self.meta["classes"])

    def pixels(self, split: Split) -> Pixels:
        """Memory-mapped, [images, channels, height, width]."""
        shape = (self.meta["images"][split.value], *self.meta["shape"])
        return np.memmap(self.folder / f"{split}.pixels", np.uint8, "r", shape=shape)

    def labels(self, split: Split) -> Rows:
        """Numbers of the classes, int64 [images]."""
        found: Rows = np.load(self.folder / f"{split}.npy")
        return found


def prepare(data: ImageDataConfig, cache: Path, alive: Callable[[], None] = lambda: None) -> Images:
    """The images of a configuration, decoded once in a folder that trials share.

    Args:
        data: where the images are.
        cache: the folder above it.
        alive: called every now and then while images are decoded, here or by another process.

    Raises:
        UserError: an image, a row or a file cannot be read, or a split is empty.
    """
    if found := problems(data):
        raise UserError(f"data: {found[0]}")
    files = (f for f in SOURCES[data.source].files(data) if f.exists())  # a link may be broken
    stats = [(str(f.resolve()), f.stat()) for f in files]
    settings = {
        "version": VERSION,
        "files": [[name, s.st_size, s.st_mtime_ns] for name, s in stats],
        "data": key_settings(data, exclude=("loader_workers",)),
    }
    build = _ImageBuild(data, alive)
    return Images(publish_settings(cache, settings, build.run, alive=alive))


@dataclass
class _ImageBuild:
    """Decodes all images into a folder."""

    data: ImageDataConfig
    alive: Callable[[], None]
    shape: tuple[int, ...] = ()
    labels: dict[Split, list[int | str]] = field(default_factory=lambda: {s: [] for s in Split})

    def run(self, folder: Path) -> None:
        """Write the arrays and `meta.json`."""
        content, bad = hashlib.sha256(), BadRows(self.data.on_bad_data)
        splits, twice = dict[str, Split](), 0
        sums: Any = 0.0  # of each channel's values and of their squares
        with ExitStack() as stack:
            out = {s: stack.enter_context(open(folder / f"{s}.pixels", "wb")) for s in Split}
            for raw, pixels in bad.leave_out(self._decoded()):
                digest = hashlib.sha256(pixels.tobytes()).hexdigest()
                split = split_by_digest(digest, SHARE, raw.splits)
                twice += splits.setdefault(digest, split) is not split
                out[split].write(pixels.tobytes())
                self.labels[split].append(raw.label)
                content.update(f"{digest} {raw.label} {split}\n".encode())
                if split is Split.TRAIN:
                    values = pixels.reshape(len(pixels), -1) / 255.0
                    sums = sums + np.stack([values.sum(1), (values**2).sum(1)])
        bad.log()
        if twice:
            log.warning("data: %d images are equal to one of another split", twice)
        classes = self._write_labels(folder)
        count = len(self.labels[Split.TRAIN]) * self.shape[1] * self.shape[2]
        mean, squares = sums / count
        meta = {
            "shape": self.shape,
            "classes": classes,
            "mean": mean.tolist(),
            "std": np.sqrt(np.maximum(squares - mean**2, 1e-6)).tolist(),
            "images": {split.value: len(found) for split, found in self.labels.items()},
            "content": content.hexdigest(),
            "skipped": bad.problems,
        }
        (folder / "meta.json").write_text(json.dumps(meta, indent=1))

    def _decoded(self) -> Iterator[tuple[RawImage, Pixels] | BadRow]:
        """Every image, [channels, height, width], in order."""

        def read(raw: RawImage | BadRow) -> tuple[RawImage, Pixels] | BadRow:
            if isinstance(raw, BadRow):
                return raw
            try:
                return raw, _convert(decode(raw.content), self.data)
            except Exception as e:  # noqa: BLE001 - Pillow raises many kinds for broken files
                return BadRow(f"{raw.place}: cannot be decoded ({e})")

        images = SOURCES[self.data.source].read(self.data)
        with ThreadPoolExecutor(self.data.loader_workers) as pool:  # Pillow releases the GIL
            while part := list(islice(images, AT_ONCE)):
                self.alive()
                yield from map(self._check_shape, pool.map(read, part))

    def _check_shape(
        self, image: tuple[RawImage, Pixels] | BadRow
    ) -> tuple[RawImage, Pixels] | BadRow:
        if isinstance(image, BadRow):
            return image
        raw, pixels = image
        self.shape = self.shape or pixels.shape
        if pixels.shape == self.shape:
            return image
        return BadRow(
            f"{raw.place}: [channels, height, width] are {list(pixels.shape)}, those of the first"
            f" image {list(self.shape)}; set data.size and data.channels to convert them"
        )

    def _write_labels(self, folder: Path) -> list[str]:
        """Write the numbers of the classes; returns their names."""
        if not all(self.labels.values()):
            counts = {split.value: len(found) for split, found in self.labels.items()}
            raise UserError(f"data: a split has no image ({counts}); give more images")
        every = sorted({label for found in self.labels.values() for label in found}, key=_order)
        if lacking := {*every} - {*self.labels[Split.TRAIN]}:
            problem = f"class '{min(lacking, key=_order)}' has no image in the train split"
            raise UserError(f"data: {problem}; give more images of it, or remove it")
        number = {label: at for at, label in enumerate(every)}
        for split, found in self.labels.items():
            np.save(folder / f"{split}.npy", np.array([number[v] for v in found], np.int64))
        names = Path(*self.data.path[:1], "batches.meta.txt")
        if self.data.source == "cifar10" and names.exists():
            return names.read_text().split()
        return [str(label) for label in every]


def _order(label: int | str) -> tuple[int, str]:
    return (label, "") if isinstance(label, int) else (0, label)


def _convert(pixels: Pixels, data: ImageDataConfig) -> Pixels:
    """[channels, height, width], converted as the settings say."""
    if data.size is not None and pixels.shape[:2] != (data.size, data.size):
        pixels = _resize(pixels, data.size)
    if data.channels == 1 and pixels.shape[2] == 3:
        pixels = pixels.mean(2, keepdims=True).round().astype(np.uint8)
    if data.channels == 3 and pixels.shape[2] == 1:
        pixels = pixels.repeat(3, 2)
    return np.ascontiguousarray(pixels.transpose(2, 0, 1))


def _resize(pixels: Pixels, size: int) -> Pixels:
    """The middle square of an image whose shorter side is resized to `size`.

    It is what the processors of `transformers` do with `shortest_edge` and `crop_size`.
    """
    from PIL import Image

    height, width = pixels.shape[:2]
    wide, high = (size * side // min(height, width) for side in (width, height))
    image = Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels)
    left, top = (wide - size) // 2, (high - size) // 2
    resized = image.resize((wide, high), Image.Resampling.BILINEAR)
    cut = np.asarray(resized.crop((left, top, left + size, top + size)))
    return cut[..., None] if cut.ndim == 2 else cut
