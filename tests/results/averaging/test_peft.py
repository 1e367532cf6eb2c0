"""Adapters written by PEFT: merging their average equals averaging the merged models."""

from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

from results.averaging import average, make_method
from results.averaging.stream import Averaged
from search_spaces.errors import UserError

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated"),  # PEFT asks
]

SIZE = 16
ADAPTER = "adapter_model.safetensors"
Weights = dict[str, torch.Tensor]


def base() -> LlamaForCausalLM:
    """The same model at each call."""
    config = LlamaConfig(
        vocab_size=32,
        hidden_size=SIZE,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=16,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return LlamaForCausalLM(config)


def adapter(folder: Path, seed: int, share: str = "") -> Path:
    """An adapter written by PEFT; adapters with the same `share` agree in that factor."""
    config = LoraConfig(r=2, lora_alpha=4, target_modules=["q_proj", "down_proj"])
    model = get_peft_model(base(), config)
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            if parameter.requires_grad:
                number = 0 if share and share in name else seed
                draw = torch.Generator().manual_seed(number)
                parameter.copy_(torch.randn(parameter.shape, generator=draw) * 0.1)
    model.save_pretrained(folder)
    return folder / ADAPTER


def merged(folder: Path) -> Weights:
    """The base model with an adapter merged into it by PEFT."""
    model: Any = PeftModel.from_pretrained(base(), folder)
    found: Weights = model.merge_and_unload().state_dict()
    return found


def mixed(tmp_path: Path, sources: list[Path], weights: list[float]) -> tuple[Averaged, Weights]:
    """The average of adapters, and the base model with it merged."""
    target = tmp_path / "mean"
    target.mkdir()
    config = sources[0].with_name("adapter_config.json")
    (target / config.name).write_bytes(config.read_bytes())
    made = average(sources, target / ADAPTER, weights, method=make_method("weighted"))
    return made, merged(target)


def mean(models: list[Weights], weights: list[float]) -> Weights:
    total = sum(weights)
    shares = torch.tensor(weights, dtype=torch.float64) / total
    return {
        k: torch.tensordot(shares, torch.stack([m[k].double() for m in models]), 1).float()
        for k in models[0]
    }


@pytest.mark.parametrize("share", ["lora_A", "lora_B"])
def test_average_of_adapters_that_share_a_factor_is_exact(tmp_path: Path, share: str) -> None:
    sources = [adapter(tmp_path / str(seed), seed, share) for seed in (1, 2, 3)]
    made, found = mixed(tmp_path, sources, [1, 2, 1])
    expected = mean([merged(s.parent) for s in sources], [1, 2, 1])
    assert made.rank_loss == 0.0
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    moved = [k for k, v in base().state_dict().items() if not torch.equal(v, found[k])]
    assert len(moved) == 4, "two layers with two adapted weights each"


def test_rank_loss_is_what_a_low_rank_loses(tmp_path: Path) -> None:
    sources = [adapter(tmp_path / str(seed), seed) for seed in (1, 2)]
    made, found = mixed(tmp_path, sources, [1, 1])
    start, expected = base().state_dict(), mean([merged(s.parent) for s in sources], [1, 1])
    lost = sum(float(((found[k] - expected[k]).double() ** 2).sum()) for k in start)
    whole = sum(float(((expected[k] - start[k]).double() ** 2).sum()) for k in start)
    assert made.rank_loss == pytest.approx((lost / whole) ** 0.5, rel=1e-3)


def test_dora_adapters_are_refused(tmp_path: Path) -> None:
    dora = LoraConfig(r=2, target_modules=["q_proj"], use_dora=True)
    get_peft_model(base(), dora).save_pretrained(tmp_path / "dora")
    with pytest.raises(UserError, match="belongs to an adapter that cannot be averaged"):
        average([tmp_path / "dora" / ADAPTER] * 2, tmp_path / "mean")
