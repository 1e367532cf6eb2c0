"""`tune predict` with a classifier of images."""

from __future__ import annotations

import json

import numpy as np
from PIL import Image

from tests.cli.conftest import Tune
from tests.cli.trained import DIGITS, trained


def test_classes_have_names_and_raw_pixels_are_refused(tune: Tune) -> None:
    for number, name in enumerate(("cat", "dog")):
        (tune.cwd / "images" / name).mkdir(parents=True)
        for i in range(20):
            pixels = np.full((8, 8, 3), 40 + 150 * number + i, np.uint8)
            Image.fromarray(pixels).save(tune.cwd / "images" / name / f"{i}.png")
    data = {"source": "folder", "path": str(tune.cwd / "images")}
    fixed = {"width": 8, "epochs": 1, "batch_size": 8, "data": data}
    small = {"trainable": "image_classifier", "fixed": fixed, "budget": {"trials": 1}}
    trained({**DIGITS, **small, "resources": {"workers": 1}})
    rows = np.zeros((2, 3, 8, 8), np.float32)
    np.save("rows.npy", rows)
    printed = tune("predict", "mine", "--input", "rows.npy").out.splitlines()
    assert {json.loads(line)["class"] for line in printed} <= {"cat", "dog"}
    np.save("rows.npy", rows + 200)
    assert "takes normalized pixels" in tune.refused("predict", "mine", "--input", "rows.npy")
