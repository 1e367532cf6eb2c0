"""Images of every source: the same pixels, disjoint splits, one clear line for a mistake."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from pydantic import ValidationError

from search_spaces.errors import UserError
from trainables.base import Split
from trainables.data.images.config import ImageDataConfig
from trainables.data.images.dataset import Images, prepare
from trainables.image_classifier.config import ImageClassifierConfig

COUNT = 60
SHARED = np.random.default_rng(0).integers(0, 256, (COUNT, 32, 32, 3), np.uint8)
LABELS = (np.arange(COUNT) % 3).tolist()


def png(pixels: np.ndarray[Any, Any]) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "png")
    return file.getvalue()


def write_cifar(folder: Path, labels: list[int] = LABELS) -> dict[str, Any]:
    rows = np.concatenate(
        [np.array(labels, np.uint8)[:, None], SHARED.transpose(0, 3, 1, 2).reshape(COUNT, -1)], 1
    )
    folder.mkdir(parents=True)
    rows[:40].tofile(folder / "data_batch_1.bin")
    rows[40:].tofile(folder / "test_batch.bin")
    (folder / "batches.meta.txt").write_text("bird\ncat\ndog\n")
    return {"source": "cifar10", "path": str(folder)}


def write_parquet(folder: Path, images: list[Any] | None = None) -> dict[str, Any]:
    folder.mkdir(parents=True)
    images = images or [{"bytes": png(pixels), "path": None} for pixels in SHARED]
    table = pa.table({"image": images, "label": LABELS})
    pq.write_table(table.slice(0, 30), folder / "a.parquet", row_group_size=16)
    pq.write_table(table.slice(30, 10), folder / "selection.parquet")
    pq.write_table(table.slice(40), folder / "test.parquet")
    return {
        "source": "parquet",
        "path": str(folder / "a*.parquet"),
        "selection_path": str(folder / "selection.parquet"),
        "test_path": str(folder / "test.parquet"),
    }


def write_folder(folder: Path) -> dict[str, Any]:
    for at, (pixels, label) in enumerate(zip(SHARED, LABELS, strict=True)):
        file = folder / ("train" if at < 40 else "test") / f"class{label}" / f"{at:02}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(png(pixels))
    return {"source": "folder", "path": str(folder)}


def write_lists(folder: Path) -> dict[str, Any]:
    return write_parquet(folder, SHARED.tolist())


WRITERS = {
    "cifar10": write_cifar,
    "parquet": write_parquet,
    "lists": write_lists,
    "folder": write_folder,
}


def made(config: dict[str, Any], cache: Path) -> Images:
    return prepare(ImageDataConfig.model_validate(config), cache)


def contents(images: Images, split: Split) -> set[tuple[bytes, int]]:
    pairs = zip(images.pixels(split), images.labels(split).tolist(), strict=True)
    return {(pixels.tobytes(), label) for pixels, label in pairs}


@pytest.mark.parametrize("source", WRITERS)
def test_every_source_gives_the_same_images(source: str, tmp_path: Path) -> None:
    images = made(WRITERS[source](tmp_path / source), tmp_path / "cache")
    expected = {
        (pixels.transpose(2, 0, 1).tobytes(), label)
        for pixels, label in zip(SHARED, LABELS, strict=True)
    }
    parts = {split: contents(images, split) for split in Split}
    assert set().union(*parts.values()) == expected
    assert sum(len(part) for part in parts.values()) == COUNT  # disjoint
    assert {pixels for pixels, _ in parts[Split.TEST]} == {
        pixels.transpose(2, 0, 1).tobytes() for pixels in SHARED[40:]
    }
    if source in ("parquet", "lists"):
        assert len(images.labels(Split.SELECTION)) == 10
    names = {
        "cifar10": ["bird", "cat", "dog"],
        "parquet": ["0", "1", "2"],
        "lists": ["0", "1", "2"],
        "folder": ["class0", "class1", "class2"],
    }
    assert images.classes == names[source]
    train = images.pixels(Split.TRAIN) / 255
    assert images.meta["mean"] == pytest.approx(train.mean((0, 2, 3)))
    assert images.meta["std"] == pytest.approx(train.std((0, 2, 3)))


def test_images_are_decoded_once_and_the_same_by_any_number_of_threads(tmp_path: Path) -> None:
    config = write_folder(tmp_path / "folder")
    one, four, again = (
        made({**config, "loader_workers": threads}, tmp_path / cache)
        for cache, threads in (("a", 1), ("b", 4), ("a", 3))
    )
    assert one.meta["content"] == four.meta["content"]
    assert again.folder == one.folder
    assert [f.name for f in (tmp_path / "a").iterdir() if f.is_dir()] == [one.folder.name]


def test_images_are_converted_to_one_size_and_number_of_channels(tmp_path: Path) -> None:
    for at, shape in enumerate([(20, 30), (40, 25, 3)] * 30):
        folder = tmp_path / "mixed" / f"class{at % 2}"
        folder.mkdir(parents=True, exist_ok=True)
        pixels = np.full(shape, 4 * at, np.uint8)
        (folder / f"{at}.png").write_bytes(png(pixels))
    config = {"source": "folder", "path": str(tmp_path / "mixed")}
    with pytest.raises(
        UserError, match=r"class1/1.png: .*\[3, 40, 25\], .*\[1, 20, 30\]; set data"
    ):
        made(config, tmp_path / "cache")
    images = made({**config, "size": 16, "channels": 3}, tmp_path / "cache")
    assert images.meta["shape"] == [3, 16, 16]
    assert all(np.ptp(image) == 0 for image in images.pixels(Split.TRAIN))


def _cut(data: dict[str, Any]) -> None:
    file = Path(data["path"], "data_batch_1.bin")
    file.write_bytes(file.read_bytes()[:-1])


def _label(data: dict[str, Any]) -> None:
    file = Path(data["path"], "data_batch_1.bin")
    content = bytearray(file.read_bytes())
    content[3073 * 7] = 11
    file.write_bytes(content)


def _text_for_images(data: dict[str, Any]) -> None:
    pq.write_table(pa.table({"image": ["x"], "label": [1.5]}), data["test_path"])


def _empty(data: dict[str, Any]) -> None:
    for file in Path(data["path"]).rglob("*.png"):
        file.unlink()


FOUND_BY_PLAN = {
    "cut row": (write_cifar, _cut, r"data_batch_1.bin: row 40 is cut off: .* 3073 bytes, not 3072"),
    "wrong label": (write_cifar, _label, r"data_batch_1.bin: row 8: label 11, but classes are 0"),
    "types": (
        write_parquet,
        _text_for_images,
        r"column 'image' must be bytes.* got string",
    ),
    "no images": (write_folder, _empty, r"class0: has no image, so it is no class"),
}


@pytest.mark.parametrize("case", FOUND_BY_PLAN)
def test_what_names_sizes_and_columns_show_is_found_before_a_worker_starts(
    case: str, tmp_path: Path
) -> None:
    write, damage, message = FOUND_BY_PLAN[case]
    data = write(tmp_path / "data")
    config = ImageClassifierConfig.model_validate({"data": data})
    assert config.missing_files() == []
    damage(data)
    path, problem = config.missing_files()[0]
    assert path == ("data", "path")
    with pytest.raises(UserError, match=message) as raised:
        made(data, tmp_path / "cache")
    assert problem in str(raised.value)
    assert "\n" not in str(raised.value)


def test_classes_without_an_image_to_learn_from_are_refused(tmp_path: Path) -> None:
    data = write_folder(tmp_path / "data")
    (tmp_path / "data/test/class1").rename(tmp_path / "data/test/Class1")
    with pytest.raises(UserError, match="class 'Class1' has no image in the train split"):
        made(data, tmp_path / "cache")


def test_images_that_are_trained_on_and_held_out_are_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = write_folder(tmp_path / "data")
    shutil.copytree(tmp_path / "data/test/class1", tmp_path / "data/train/class3")
    (tmp_path / "data/train/class3/x.png").symlink_to("gone.png")
    with pytest.raises(UserError, match=r"x\.png: cannot be decoded"):
        made(data, tmp_path / "cache")
    made({**data, "on_bad_data": "skip"}, tmp_path / "cache")
    assert "images are equal to one of another split" in caplog.text


def test_unreadable_image_is_named_or_skipped(tmp_path: Path) -> None:
    content: list[Any] = [{"bytes": png(pixels)} for pixels in SHARED]
    content[17] = {"bytes": content[17]["bytes"][:100]}
    content[18] = None
    data = write_parquet(tmp_path / "data", content)
    with pytest.raises(UserError, match=r"a.parquet: row 18: cannot be decoded \(.*skip$"):
        made(data, tmp_path / "cache")
    images = made({**data, "on_bad_data": "skip"}, tmp_path / "cache")
    assert sum(images.meta["images"].values()) == COUNT - 2
    assert [line.split(": ")[1] for line in images.meta["skipped"]] == ["row 18", "row 19"]
    assert json.loads((images.folder / "meta.json").read_text()) == images.meta


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"source": "hdf5", "path": "x"}, "hdf5 is not read; write a Parquet file"),
        ({"source": "folder", "path": "x.tfrecord"}, "tfrecord is not read; write a Parquet file"),
        ({"source": "parquet"}, "source 'parquet' needs a path"),
        ({"path": "x"}, "path has no effect with source: digits"),
        (
            {"source": "folder", "path": "x", "test_path": "y"},
            "test_path and selection_path are of",
        ),
    ],
)
def test_settings_that_do_not_fit_are_refused(data: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        ImageDataConfig.model_validate(data)
