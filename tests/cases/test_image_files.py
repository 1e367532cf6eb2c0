"""Names of image files decide on class and split, and their values on pixels: or are refused."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from search_spaces.errors import UserError
from trainables.base import Split
from trainables.data.images.config import ImageDataConfig
from trainables.data.images.dataset import Images, prepare


def write(root: Path, *folders: str, count: int = 20, first: int = 0) -> None:
    """Grey images in each folder, of values that no other folder has."""
    for at, folder in enumerate(folders):
        (root / folder).mkdir(parents=True, exist_ok=True)
        for i in range(count):
            pixels = np.full((4, 4), first + at * count + i, np.uint8)
            Image.fromarray(pixels).save(root / folder / f"{i}.png")


def read(root: Path, **data: Any) -> Images:
    config = {"source": "folder", "path": str(root), **data}
    return prepare(ImageDataConfig.model_validate(config), root.parent / "cache")


def values(images: Images, split: Split) -> set[int]:
    return {int(pixels[0, 0, 0]) for pixels in images.pixels(split)}


@pytest.mark.parametrize("name", ["val", "validation", "valid", "Valid", "dev", "eval"])
def test_images_of_held_out_folders_are_not_trained_on(name: str, tmp_path: Path) -> None:
    parts = [f"{part}/{label}" for part in ("train", name, "test") for label in ("cat", "dog")]
    write(tmp_path / "d", *parts)
    images = read(tmp_path / "d")
    assert images.classes == ["cat", "dog"]
    found = [values(images, split) for split in (Split.TRAIN, Split.SELECTION, Split.TEST)]
    assert found == [set(range(40)), set(range(40, 80)), set(range(80, 120))]


def test_hidden_files_and_those_of_systems_are_not_data(tmp_path: Path) -> None:
    write(tmp_path / "d", "cat", "dog", ".ipynb_checkpoints", "cat/.thumbs", "__MACOSX/cat")
    for name in ("cat/._0.png", "cat/Thumbs.db", ".DS_Store", "README.md"):
        (tmp_path / "d" / name).write_bytes(b"x")
    images = read(tmp_path / "d")
    assert images.classes == ["cat", "dog"]
    assert sum(images.meta["images"].values()) == 40
    assert images.meta["skipped"] == []


@pytest.mark.parametrize(
    ("stray", "what"),
    [
        ("cover.png", "folder of no class"),
        ("cat/black/0.png", "cat/black: is a folder in class"),
        ("cat/notes.txt", "not an image"),
    ],
)
def test_what_is_in_no_place_of_an_image_is_named_or_skipped(
    stray: str, what: str, tmp_path: Path
) -> None:
    write(tmp_path / "d", "cat", "dog", first=10)
    file = tmp_path / "d" / stray
    file.parent.mkdir(exist_ok=True)
    Image.new("L", (4, 4)).save(file, "png")
    with pytest.raises(UserError, match=what):
        read(tmp_path / "d")
    images = read(tmp_path / "d", on_bad_data="skip")
    assert images.classes == ["cat", "dog"]
    assert [what in line for line in images.meta["skipped"]] == [True]


def test_folder_beside_the_splits_and_splits_without_classes_are_named(tmp_path: Path) -> None:
    write(tmp_path / "a", "train/cat", "train/dog", "holdout/cat")
    with pytest.raises(UserError, match=r"holdout: is beside train"):
        read(tmp_path / "a")
    write(tmp_path / "b", "train", "test")
    with pytest.raises(UserError, match=r"train, test|test, train"):
        read(tmp_path / "b")


def test_train_may_be_a_class_and_a_class_a_link(tmp_path: Path) -> None:
    write(tmp_path / "d", "train", "bus")
    write(tmp_path / "elsewhere", ".")
    (tmp_path / "d" / "plane").symlink_to(tmp_path / "elsewhere")
    assert read(tmp_path / "d").classes == ["bus", "plane", "train"]


@pytest.mark.parametrize(
    ("name", "held_out", "what"),
    [
        ("validation-00000-of-00001", {}, "give it as data.selection_path"),
        ("b", {"test_path": "b.parquet"}, "is in data.path and data.test_path"),
    ],
)
def test_held_out_parquet_files_are_not_trained_on(
    name: str, held_out: dict[str, str], what: str, tmp_path: Path
) -> None:
    rows = {"image": [[[i, i], [i, i]] for i in range(60)], "label": [i % 2 for i in range(60)]}
    for file in ("train-00000-of-00001", name):
        pq.write_table(pa.table(rows), tmp_path / f"{file}.parquet")
    given = {key: str(tmp_path / file) for key, file in held_out.items()}
    with pytest.raises(UserError, match=what):
        read(tmp_path / "*.parquet", source="parquet", **given)


def decoded(image: Image.Image, root: Path, form: str, **options: Any) -> npt.NDArray[np.uint8]:
    """The pixels that are trained on, [height, width, channels], of an image in two classes."""
    for part in ("train", "val", "test"):
        for label in ("a", "b"):
            (root / "d" / part / label).mkdir(parents=True)
            image.save(root / "d" / part / label / f"0.{form}", **options)
    found: npt.NDArray[np.uint8] = read(root / "d").pixels(Split.TRAIN)[0].transpose(1, 2, 0)
    return found


@pytest.mark.parametrize("value", [0, 257, 30_000, 65_535])
@pytest.mark.parametrize("form", ["png", "tif"])
def test_sixteen_bits_are_scaled_to_eight(value: int, form: str, tmp_path: Path) -> None:
    pixels = decoded(Image.fromarray(np.full((4, 4), value, np.uint16)), tmp_path, form)
    assert pixels.shape == (4, 4, 1)
    assert pixels[1, 1, 0] == round(value / 257)


@pytest.mark.parametrize("kind", [np.float32, np.int32])
def test_values_without_a_known_white_are_refused(kind: Any, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no known white"):
        decoded(Image.fromarray(np.ones((4, 4), kind)), tmp_path, "tif")


def test_fractions_in_lists_are_refused(tmp_path: Path) -> None:
    rows = {"image": [[[i / 60, 1.0], [0.0, 1.0]] for i in range(60)], "label": [0, 1] * 30}
    pq.write_table(pa.table(rows), tmp_path / "a.parquet")
    with pytest.raises(UserError, match="whole numbers of 0 to 255"):
        read(tmp_path / "a.parquet", source="parquet")


def test_photos_are_turned_as_their_orientation_says(tmp_path: Path) -> None:
    photo = Image.new("RGB", (24, 16))
    photo.paste((255, 255, 255), (0, 0, 24, 8))  # the upper half is white
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned clockwise
    pixels = decoded(photo, tmp_path, "png", exif=exif)
    assert pixels.shape == (24, 16, 3)
    assert (pixels[:, :8].max(), pixels[:, 8:].min()) == (0, 255)


def test_file_that_breaks_the_decoder_is_named(tmp_path: Path) -> None:
    write(tmp_path / "d", "cat", "dog")
    content = io.BytesIO()
    Image.new("RGB", (8, 8)).save(content, "tiff")
    (tmp_path / "d" / "cat" / "0.png").write_bytes(content.getvalue()[:60])
    with pytest.raises(UserError, match=r"cat/0.png: cannot be decoded"):
        read(tmp_path / "d")
