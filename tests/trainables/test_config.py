from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from trainables.causal_lm.config import CausalLMConfig
from trainables.causal_lm.lora import LoRAConfig
from trainables.config import TrainableConfig
from trainables.registry import TRAINABLES, resolve


@pytest.mark.parametrize("name", TRAINABLES)
def test_every_hyperparameter_has_a_description(name: str) -> None:
    for field in resolve(name).Config.model_fields.values():
        assert field.description


@pytest.mark.parametrize(
    ("config", "path", "problem"),
    [
        (
            {"learning_rat": 1},
            ("learning_rat",),
            "unknown hyperparameter 'learning_rat' (did you mean 'learning_rate'?)",
        ),
        (
            {"data": {"max_byte": 1}},
            ("data", "max_byte"),
            "unknown hyperparameter 'max_byte' (did you mean 'max_bytes'?)",
        ),
        ({"hidden_size": "wide"}, ("hidden_size",), "must be a whole number, got 'wide'"),
        ({"hidden_size": 64.5}, ("hidden_size",), "must be a whole number, got 64.5"),
        ({"learning_rate": [1]}, ("learning_rate",), "must be a number, got [1]"),
        ({"learning_rate": 0}, ("learning_rate",), "must be > 0.0, got 0"),
        ({"beta2": 1.0}, ("beta2",), "must be < 1.0, got 1.0"),
        ({"warmup_fraction": 3}, ("warmup_fraction",), "must be <= 1.0, got 3"),
        ({"vocab_size": 3}, ("vocab_size",), "must be >= 257, got 3"),
        (
            {"dtype": "half"},
            ("dtype",),
            "must be one of auto, float32, bfloat16 or float16, got 'half'",
        ),
        ({"data": 3}, ("data",), "must be a mapping of names to values, got 3"),
        ({"data": {"paths": 3}}, ("data", "paths"), "must be a list, got 3"),
        (
            {"data": {"source": "files"}},
            ("data",),
            "source 'files' needs paths, for example paths: texts/*.txt",
        ),
        (
            {"hidden_size": 65, "num_heads": 5},
            (),
            "hidden_size 65 must be a multiple of 2 x num_heads (num_heads is 5): rotary positions"
            " turn pairs of units",
        ),
        (
            {"model_name_or_path": "gpt2", "num_layers": 3},
            (),
            "num_layers: no effect with model_name_or_path, which has its own;"
            " remove one or the other",
        ),
    ],
)
def test_problems_name_the_path_and_the_rule(
    config: dict[str, Any], path: tuple[str, ...], problem: str
) -> None:
    assert CausalLMConfig.problems(config) == [(path, problem)]


def test_problems_reports_all_at_once() -> None:
    config = {"epochs": 0, "optimiser": "sgd", "dropout": 1}
    assert len(resolve("digits").Config.problems(config)) == 3


def test_resolve_paths_makes_paths_absolute(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    config = {
        "data": {"source": "files", "paths": ["a/*.txt", "/b"]},
        "model_name_or_path": "model",
    }
    fixed = CausalLMConfig.resolve_paths(config, tmp_path)
    assert fixed["data"]["paths"] == [f"{tmp_path}/a/*.txt", "/b"]
    assert fixed["model_name_or_path"] == str(tmp_path / "model")
    hub = {"model_name_or_path": "org/name"}
    assert CausalLMConfig.resolve_paths(hub, tmp_path) == hub
    assert resolve("digits").Config.resolve_paths({"epochs": 3}, tmp_path) == {"epochs": 3}


def test_checkpoint_bytes_count_weights_and_adam_state() -> None:
    digits = resolve("digits").Config()
    assert digits.checkpoint_bytes == 12 * (64 * 64 + 64 + 64 * 64 + 64 + 64 * 10 + 10)
    assert CausalLMConfig(model_name_or_path="gpt2").checkpoint_bytes is None


def test_checkpoint_bytes_of_a_pretrained_model_count_its_files(tmp_path: Path) -> None:
    save_file({"a": np.zeros((3, 5), np.float16), "b": np.zeros(7)}, tmp_path / "model.safetensors")
    model = CausalLMConfig(model_name_or_path=str(tmp_path))
    assert model.checkpoint_bytes == 12 * (3 * 5 + 7)
    assert model.model_copy(update={"lora": LoRAConfig()}).checkpoint_bytes is None


@pytest.mark.parametrize("config", [type(resolve(n).Config()) for n in ("digits", "causal_lm")])
def test_halve_micro_batch(config: type[TrainableConfig]) -> None:
    def halved(**given: int) -> dict[str, int] | None:
        return config.model_validate({"batch_size": 12, **given}).halve_micro_batch(workers=2)

    assert halved() == {"micro_batch_size": 3}
    assert halved(micro_batch_size=3) == {"micro_batch_size": 1}
    assert halved(micro_batch_size=64) == {"micro_batch_size": 3}
    assert halved(micro_batch_size=1) is None


def test_halve_micro_batch_needs_the_field() -> None:
    class Plain(TrainableConfig):
        batch_size: int = 8

    assert Plain().halve_micro_batch(workers=1) is None
