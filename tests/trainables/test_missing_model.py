"""A model folder to begin with that is gone, as after its pipeline was moved."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from search_spaces.errors import UserError
from tests.trainables.causal_lm.pretrained import write_base
from trainables.causal_lm.config import CausalLMConfig
from trainables.causal_lm.model.model import new_model
from trainables.data.images.dataset import prepare as prepare_images
from trainables.data.text.dataset import prepare
from trainables.data.tokenizer import load_pretrained
from trainables.image_classifier.config import ImageClassifierConfig
from trainables.image_classifier.model import new_classifier

GONE = "the model to begin with is not there"


def test_weights_of_a_language_model_that_are_gone(tmp_path: Path) -> None:
    given: dict[str, Any] = write_base(tmp_path / "base", tmp_path / "cache")
    config = CausalLMConfig.model_validate(given)
    data = prepare(config, tmp_path / "cache")
    shutil.rmtree(tmp_path / "base")
    with pytest.raises(UserError, match=GONE):
        new_model(config, data)
    with pytest.raises(UserError, match=GONE):
        load_pretrained(str(tmp_path / "base"))


def test_image_model_that_is_gone(tmp_path: Path) -> None:
    config = ImageClassifierConfig.model_validate({"model": str(tmp_path / "gone")})
    images = prepare_images(config.data, tmp_path / "cache")
    with pytest.raises(UserError, match=GONE):
        new_classifier(config, images)
