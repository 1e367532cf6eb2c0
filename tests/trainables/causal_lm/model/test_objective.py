from pathlib import Path
from typing import Any

import pytest
import torch

from tests.trainables.examples import EXAMPLES
from tests.trainables.local import newest_checkpoint, run_trial
from trainables.base import Split
from trainables.causal_lm.config import CausalLMConfig
from trainables.causal_lm.model.fast_path import speed_up
from trainables.causal_lm.model.model import load_model, new_model
from trainables.causal_lm.model.objective import (
    NextTokenLoss,
    next_token_loss,
    step_flops,
    to_device,
)
from trainables.causal_lm.trainable import CausalLM
from trainables.data.text.dataset import prepare

TINY = EXAMPLES["causal_lm"].config


def gradients(loss: torch.Tensor, model: torch.nn.Module) -> list[torch.Tensor]:
    return list(torch.autograd.grad(loss, list(model.parameters())))


def test_loss_of_the_gpu_path_equals_that_of_transformers(cache: Path) -> None:
    """The code is the same on a CPU, so that it is tested everywhere."""
    config = CausalLMConfig.model_validate(TINY)
    dataset = prepare(config, cache)
    model: Any = new_model(config, dataset)
    rows = dataset.sequences(Split.TRAIN)[:4]
    tokens = to_device(rows, torch.device("cpu"))
    loss = NextTokenLoss(model, config)
    plain = loss(tokens)
    expected = gradients(plain, model)
    speed_up(model)
    fast = loss(tokens)
    torch.testing.assert_close(fast, plain)
    torch.testing.assert_close(gradients(fast, model), expected, rtol=1e-4, atol=1e-6)
    with torch.no_grad():
        judged = next_token_loss(model, config, "mean", tokens)
    torch.testing.assert_close(judged, plain.detach())


def test_recomputed_activations_give_the_same_curve(tmp_path: Path, cache: Path) -> None:
    kept = run_trial(tmp_path / "kept", "causal_lm", TINY, cache=cache)
    again = {**TINY, "activation_checkpointing": True}
    assert run_trial(tmp_path / "again", "causal_lm", again, cache=cache).curve == kept.curve


def test_auto_is_float32_and_not_compiled_on_a_cpu(tmp_path: Path, cache: Path) -> None:
    full = run_trial(tmp_path / "full", "causal_lm", TINY, cache=cache)
    auto = run_trial(tmp_path / "auto", "causal_lm", {**TINY, "dtype": "auto"}, cache=cache)
    assert auto.curve == full.curve


def test_flops_of_a_step_follow_from_the_shape(cache: Path) -> None:
    config = CausalLMConfig.model_validate(TINY)
    model = new_model(config, prepare(config, cache))
    assert config.num_parameters is not None
    gains = 3 * config.hidden_size
    assert step_flops(model, config) == 6 * (config.num_parameters - gains) + 12 * 1 * 16 * 16


@pytest.mark.parametrize(
    ("shape", "heads"),
    [
        ({"hidden_size": 64}, 4),
        ({"hidden_size": 256}, 16),
        ({"hidden_size": 512}, 32),
        ({"size": "small"}, 12),
        ({"size": "large"}, 16),
        ({"size": "small", "num_heads": 6}, 6),
        ({"hidden_size": 128, "head_width": 32}, 4),
        ({"hidden_size": 192, "head_width": "auto"}, 12),
        ({"hidden_size": 256, "head_width": "auto"}, 4),
        ({"hidden_size": 336, "head_width": "auto"}, 4),
        ({"size": "small", "head_width": "auto"}, 12),
    ],
)
def test_heads_follow_from_the_width_or_the_size(shape: dict[str, Any], heads: int) -> None:
    assert CausalLMConfig.model_validate(shape).heads == heads


def test_keys_beside_a_size_win() -> None:
    config = CausalLMConfig.model_validate({"size": "medium", "num_layers": 3})
    assert (config.hidden_size, config.num_layers, config.mlp_size) == (1024, 3, 2816)
    problem = "size: no effect with model_name_or_path"
    found = CausalLMConfig.problems({"size": "tiny", "model_name_or_path": "gpt2"})
    assert [text[: len(problem)] for _, text in found] == [problem]


def test_a_checkpoint_keeps_the_heads_that_it_was_trained_with(tmp_path: Path, cache: Path) -> None:
    """Its `config.json` says it; the weights' shapes do not show it."""
    trained = {**TINY, "hidden_size": 64, "num_heads": 2}
    channel = run_trial(tmp_path / "t", "causal_lm", trained, cache=cache)
    weights = newest_checkpoint(tmp_path / "t").folder
    config = CausalLMConfig.model_validate({**trained, "num_heads": None})
    assert config.heads == 4
    model: Any = load_model(config, prepare(config, cache), weights)
    assert model.config.num_attention_heads == 2
    judged = CausalLM().evaluate(config, weights, Split.SELECTION, cache)
    assert judged["eval_loss"] == channel.reports[-1].metrics["eval_loss"]
