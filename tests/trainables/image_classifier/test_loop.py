"""What is special about training image classifiers; the contract is in test_conformance.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from torch.nn import functional as F
from transformers import AutoImageProcessor

from search_spaces.errors import UserError
from search_spaces.layout import Layout
from tests.trainables.local import newest_checkpoint, run_trial
from trainables.base import Split
from trainables.data.images.dataset import prepare
from trainables.image_classifier.augment import augment, blank, draw
from trainables.image_classifier.config import ImageClassifierConfig
from trainables.image_classifier.model import new_classifier
from trainables.registry import resolve
from tuning.controller.preflight.trainables import config_problems, layout_problems, worker_problems

TRAINABLE = resolve("image_classifier")
SMALL: dict[str, Any] = {"width": 8, "epochs": 2, "batch_size": 128, "learning_rate": 0.1}
VIT = {
    "model_type": "vit",
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "patch_size": 4,
}


def config_of(**changes: Any) -> ImageClassifierConfig:
    return ImageClassifierConfig.model_validate(changes)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The checkpoint of a trial, and the cache."""
    folder = tmp_path_factory.mktemp("trained")
    run_trial(folder / "t", "image_classifier", SMALL, cache=folder / "cache")
    return newest_checkpoint(folder / "t").folder, folder / "cache"


def test_two_epochs_beat_the_most_frequent_class(trained: tuple[Path, Path]) -> None:
    weights, cache = trained
    config = config_of(**SMALL)
    images = prepare(config.data, cache)
    train, test = (np.bincount(images.labels(s), minlength=10) for s in (Split.TRAIN, Split.TEST))
    scores = TRAINABLE.evaluate(config, weights, Split.TEST, cache)
    assert scores["accuracy"] > 2 * test[train.argmax()] / test.sum()
    assert scores["loss"] < -(test / test.sum() * np.log(train / train.sum())).sum()


def test_models_keep_the_images_on_which_they_were_trained(tmp_path: Path) -> None:
    """Else an export has other means of pixels, or names of classes, than its training."""
    rng = np.random.default_rng(0)
    for number in range(90):
        (tmp_path / "data" / "ab"[number % 2]).mkdir(parents=True, exist_ok=True)
        image = Image.fromarray(rng.integers(0, 99, (8, 8, 3), np.uint8))
        image.save(tmp_path / "data" / "ab"[number % 2] / f"{number}.png")
    data = {"source": "folder", "path": str(tmp_path / "data")}
    given, cache = {**SMALL, "epochs": 1, "data": data}, tmp_path / "cache"
    run_trial(tmp_path / "t", "image_classifier", given, cache=cache)
    weights, config = newest_checkpoint(tmp_path / "t").folder, config_of(**given)
    for file in (tmp_path / "data" / "a").iterdir():
        Image.new("RGB", (8, 8), "white").save(file.with_stem(f"{file.stem}white"))
    (target := tmp_path / "hf").mkdir()
    TRAINABLE.export_hf(config, weights, target, cache)
    processors = [(f / "preprocessor_config.json").read_text() for f in (weights, target)]
    assert processors[0] == processors[1]
    with pytest.raises(UserError, match="the images are not those on which the model was trained"):
        TRAINABLE.evaluate(config, weights, Split.TEST, tmp_path / "other")


def test_recalibration_restores_the_statistics_of_batch_norm(
    trained: tuple[Path, Path], tmp_path: Path
) -> None:
    weights, cache = trained
    state = load_file(weights / "model.safetensors")
    for name in state:
        if name.endswith("running_mean"):
            state[name] += 3
    save_file(state, tmp_path / "model.safetensors", {"format": "pt"})

    def loss(folder: Path) -> float:
        return TRAINABLE.evaluate(config_of(**SMALL), folder, Split.SELECTION, cache)["loss"]

    before = loss(tmp_path)
    TRAINABLE.recalibrate(config_of(**SMALL), tmp_path, cache)
    assert loss(tmp_path) < min(before / 2, 1.2 * loss(weights))
    found = load_file(tmp_path / "model.safetensors")
    learned = [k for k in state if not k.endswith(("running_mean", "running_var", "tracked"))]
    assert all(torch.equal(found[k], state[k]) for k in learned)
    images = prepare(config_of(**SMALL).data, cache)  # 1412 for training: the last batch is small
    model = new_classifier(config_of(**SMALL), images)
    pixels = model.normalised(torch.tensor(images.pixels(Split.TRAIN)))
    expected = F.conv2d(pixels, found["stem.weight"], padding=1).mean((0, 2, 3))
    torch.testing.assert_close(found["stem_norm.running_mean"], expected, atol=1e-3, rtol=0)


def test_pretrained_model_keeps_its_body_and_its_normalisation(
    trained: tuple[Path, Path], tmp_path: Path
) -> None:
    weights, _ = trained
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (80, 8, 8)).tolist()
    table = pa.table({"image": images, "label": ["ab"[i % 2] for i in range(80)]})
    pq.write_table(table, tmp_path / "a.parquet")
    data = {"source": "parquet", "path": str(tmp_path / "a.parquet")}
    changes = {"model": str(weights), "data": data, "epochs": 1, "batch_size": 32}
    start = tmp_path / "start"
    start.mkdir()
    TRAINABLE.initial(config_of(**changes), start, tmp_path / "cache")
    old, new = (load_file(folder / "model.safetensors") for folder in (weights, start))
    assert [len(state["classifier.weight"]) for state in (old, new)] == [10, 2]
    assert all(torch.equal(new[k], old[k]) for k in old if not k.startswith("classifier"))
    names = [folder / "preprocessor_config.json" for folder in (weights, start)]
    assert names[0].read_text() == names[1].read_text()
    curve = run_trial(tmp_path / "t", "image_classifier", changes).curve
    assert list(curve) == [1]


@pytest.mark.parametrize("size", [None, 8])
def test_saved_processor_makes_the_input_of_the_training_of_a_photo(
    size: int | None, tmp_path: Path
) -> None:
    rng = np.random.default_rng(0)
    images = [rng.integers(0, 256, (12, 19, 3)).tolist() for _ in range(80)]
    table = pa.table({"image": images, "label": ["ab"[i % 2] for i in range(80)]})
    pq.write_table(table, tmp_path / "a.parquet")
    data = {"source": "parquet", "path": str(tmp_path / "a.parquet"), "size": size}
    config = config_of(data=data)
    found = prepare(config.data, tmp_path / "cache")
    model = new_classifier(config, found)
    model.save(tmp_path)
    process = AutoImageProcessor.from_pretrained(tmp_path)
    photos = [Image.fromarray(np.array(image, np.uint8)) for image in images]
    made = process(photos, return_tensors="pt")["pixel_values"]
    for pixels in found.pixels(Split.TRAIN)[:5]:
        expected = model.normalised(torch.tensor(pixels))
        assert (made - expected).abs().amax((1, 2, 3)).min() < 1e-5


def test_architecture_of_transformers_trains(tmp_path: Path) -> None:
    config = {"architecture": VIT, "epochs": 1, "batch_size": 256, "optimizer": "adamw"}
    run_trial(tmp_path / "t", "image_classifier", {**config, "learning_rate": 1e-3})
    weights = newest_checkpoint(tmp_path / "t").folder
    scores = TRAINABLE.evaluate(config_of(**config), weights, Split.SELECTION, tmp_path / "cache")
    assert scores["loss"] < 2.4


def test_augmentation_moves_mirrors_and_blanks_whole_images() -> None:
    config = config_of(crop=2, flip=True, cutout=3, batch_size=16)
    images = torch.randint(1, 256, (16, 2, 6, 7), dtype=torch.uint8)
    draws = draw(config, 5, 0, slice(0, 16))
    out = augment(images, draws, config)
    for image, made, shift, flip in zip(images, out, draws.shift, draws.flip, strict=True):
        top, left = shift.tolist()
        part = F.pad(image, (2, 2, 2, 2))[:, top : top + 6, left : left + 7]
        assert torch.equal(made, part.flip(2) if flip else part)
    assert 0 < int(draws.flip.sum()) < 16
    holes = (blank(torch.ones(16, 2, 6, 7), draws, 3) == 0).sum((2, 3))
    assert torch.equal(holes[:, 0], holes[:, 1])
    assert 0 < int(holes.min()) <= int(holes.max()) <= 9


def test_draws_of_the_workers_are_parts_of_those_of_one() -> None:
    config = config_of(crop=2, mixup=0.4, batch_size=8)
    whole, *parts = (draw(config, 1, 3, share) for share in (slice(0, 8), slice(0, 4), slice(4, 8)))
    assert torch.equal(torch.cat([p.shift for p in parts]), whole.shift)
    assert {p.keep for p in parts} == {whole.keep}
    assert not torch.equal(draw(config, 1, 4, slice(0, 8)).centre, whole.centre)


def test_batch_norm_is_not_elastic() -> None:
    (path, problem), *more = worker_problems(TRAINABLE, {}, (1, 2))
    assert (path, more) == (("norm",), [])
    assert "group has no such limit" in problem
    assert worker_problems(TRAINABLE, {"norm": "group"}, (1, 2)) == []
    assert config_of().halve_micro_batch(1) is None
    assert config_of(norm="group").halve_micro_batch(2) == {"micro_batch_size": 16}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"architecture": {"hidden_size": 8}}, "architecture needs a model_type"),
        ({"architecture": VIT, "model": "resnet18"}, "exclude each other"),
        ({"model": "org/some-model", "width": 8}, "width: only for resnet8, resnet14"),
    ],
)
def test_settings_that_do_not_fit_are_refused(changes: dict[str, Any], message: str) -> None:
    assert message in config_problems(TRAINABLE, changes, files=False)[0][1]


def test_moving_average_is_what_is_evaluated(tmp_path: Path) -> None:
    """With a decay of 0 it is the trained weights themselves."""
    config = {**SMALL, "ema_decay": 0.0, "epochs": 1}
    run_trial(tmp_path / "t", "image_classifier", config)
    folder = newest_checkpoint(tmp_path / "t").folder
    trained, average = (
        load_file(folder / name) for name in ("trained.safetensors", "model.safetensors")
    )
    assert all(torch.equal(trained[k], v) for k, v in average.items())
    plain = tmp_path / "plain"
    run_trial(plain, "image_classifier", {**SMALL, "epochs": 1}, cache=tmp_path / "cache")
    file = newest_checkpoint(plain).folder / "model.safetensors"
    assert all(torch.equal(load_file(file)[k], v) for k, v in average.items())


@pytest.mark.parametrize(
    ("changes", "layout", "path", "message"),
    [
        ({}, Layout(pp=2), ("norm",), "batch does not work with layout pp 2"),
        ({"architecture": VIT}, Layout(pp=2), ("architecture",), "another model than a ResNet"),
        ({"model": "org/some"}, Layout(pp=2), ("model",), "org/some does not work with layout"),
        (
            {"norm": "group"},
            Layout(pp=4),
            (),
            "pp 4 (1f1b) has 4 stages, and the number of blocks of resnet8 is 3; nearest layout",
        ),
        (
            {"norm": "group", "batch_size": 36},
            Layout(pp=2, microbatches=5),
            (),
            "5 microbatches do not divide the 36 samples of a data-parallel rank; nearest layout"
            " that fits: {pp: 2, microbatches: 6}",
        ),
    ],
)
def test_pipelines_that_do_not_fit(
    changes: dict[str, Any], layout: Layout, path: tuple[str, ...], message: str
) -> None:
    ((found, problem),) = layout_problems(TRAINABLE, changes, layout)
    assert found == path
    assert problem.startswith(message)
    fits = Layout(pp=3, microbatches=4)
    assert layout_problems(TRAINABLE, {"norm": "group"}, fits) == []
