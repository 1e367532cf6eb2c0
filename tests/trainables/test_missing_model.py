"""A model folder to begin with that is gone, or lacks a part, or holds another model."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import BertConfig, BertForMaskedLM

from search_spaces.errors import UserError
from tests.trainables.causal_lm.pretrained import write_base
from trainables.causal_lm.config import CausalLMConfig
from trainables.causal_lm.model.model import load_merged, new_model, save_model
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


def _write(folder: Path, **changes: Any) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def _rename(folder: Path) -> None:
    file = folder / "model.safetensors"
    save_file({f"module.{k}": v for k, v in load_file(file).items()}, file, {"format": "pt"})


def _add_layer(folder: Path) -> None:
    file = folder / "model.safetensors"
    weights = load_file(file)
    more = {k.replace(".0.", ".1."): v.clone() for k, v in weights.items()}
    save_file(weights | more, file, {"format": "pt"})


def _shorten(folder: Path) -> None:
    _write(folder, vocab_size=200, num_hidden_layers=0)
    weights = {
        "model.embed_tokens.weight": torch.ones(200, 16),
        "model.norm.weight": torch.ones(16),
    }
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


def _spoil(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    weights["model.norm.weight"][3] = torch.nan
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


def _as_encoder(folder: Path) -> None:
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 1}
    BertForMaskedLM(BertConfig(vocab_size=300, **sizes)).save_pretrained(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_rename, "has no weights of a LlamaForCausalLM"),
        (lambda folder: _write(folder, num_hidden_layers=2), r"such as model.layers.1"),
        (_add_layer, "more layers"),
        (_spoil, "model.norm.weight has values that are no finite"),
        (lambda folder: _write(folder, hidden_size=32), "has no weights"),
        (lambda folder: _write(folder, model_type="other"), "cannot be loaded"),
        (lambda folder: _write(folder, model_type="t5"), "cannot be loaded"),
        (_as_encoder, "reads what follows"),
        (_shorten, "knows 200 tokens"),
    ],
)
def test_weights_that_are_not_those_of_the_model_are_refused(
    change: Callable[[Path], None], message: str, tmp_path: Path
) -> None:
    config = CausalLMConfig.model_validate(write_base(tmp_path / "base", tmp_path / "cache"))
    data = prepare(config, tmp_path / "cache")
    new_model(config, data)
    change(tmp_path / "base")
    with pytest.raises(UserError, match=message):
        new_model(config, data)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("tokenizer.json", None, "has no tokenizer.json"),
        ("config.json", None, "has no config.json"),
        ("model.safetensors", None, "has no *.safetensors"),
        ("model.safetensors", "version https://git-lfs.github.com/spec/v1\n", "Git LFS"),
        ("adapter_config.json", "{}", "an adapter without its base"),
        ("config.json", '{"max_position_embeddings": 4}', "the model has 4 positions"),
    ],
)
def test_what_files_of_a_model_lack_is_found_before_a_worker_starts(
    file: str, content: str | None, message: str, tmp_path: Path
) -> None:
    config = CausalLMConfig.model_validate(write_base(tmp_path / "base", tmp_path / "cache"))
    assert config.missing_files() == []
    path = tmp_path / "base" / file
    path.unlink() if content is None else path.write_text(content)
    ((_, problem),) = config.missing_files()
    assert message in problem


def test_a_shard_that_is_not_there_is_found_before_a_worker_starts(tmp_path: Path) -> None:
    config = CausalLMConfig.model_validate(write_base(tmp_path / "base", tmp_path / "cache"))
    shards = {name: f"model-0000{i}-of-00002.safetensors" for i, name in enumerate("ab", 1)}
    base = tmp_path / "base"
    (base / "model.safetensors").rename(base / shards["a"])
    (base / "model.safetensors.index.json").write_text(json.dumps({"weight_map": shards}))
    ((_, problem),) = config.missing_files()
    assert f"has no {shards['b']}" in problem


def test_base_whose_tokenizer_has_changed_since_is_refused(tmp_path: Path) -> None:
    base, trained = tmp_path / "base", tmp_path / "trained"
    config = CausalLMConfig.model_validate(write_base(base, tmp_path / "cache"))
    data = prepare(config, tmp_path / "cache")
    trained.mkdir()
    save_model(new_model(config, data), config, data, trained)
    load_merged(config, data, trained)
    tokenizer = json.loads((base / "tokenizer.json").read_text())
    tokens = tokenizer["model"]["vocab"]
    tokens["a"], tokens["b"] = tokens["b"], tokens["a"]
    (base / "tokenizer.json").write_text(json.dumps(tokenizer))
    with pytest.raises(UserError, match=f"{base}: its tokenizer has other tokens now than"):
        load_merged(config, data, trained)
