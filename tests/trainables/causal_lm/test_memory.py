"""The memory of a rank by arithmetic is that of a simulated training step."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from search_spaces.layout import Layout
from trainables.causal_lm.config import CausalLMConfig
from trainables.causal_lm.experts import ExpertsConfig
from trainables.causal_lm.layouts.rules import PIPELINED
from trainables.causal_lm.simulation import simulate
from trainables.data.tokenizer import train_bpe
from trainables.parallel.footprint import Footprint, RankMemory
from trainables.registry import resolve
from trainables.sft.config import SFTConfig

NEAR = 0.15
LAYOUTS = (
    Layout(),
    Layout(dp_replicate=2),
    Layout(dp_shard=2),
    Layout(dp_shard=8),
    Layout(dp_replicate=2, dp_shard=2),
    Layout(tp=2),
    Layout(tp=4),
    Layout(tp=2, sequence_parallel=True),
    Layout(tp=4, sequence_parallel=True),
    Layout(cp=2),
    Layout(pp=2),
    Layout(pp=4),
    Layout(dp_shard=2, tp=2),
    Layout(dp_shard=2, tp=2, sequence_parallel=True),
    Layout(dp_shard=2, pp=2),
    Layout(dp_replicate=2, pp=2),
    Layout(tp=2, pp=2),
)

EXPERTS = ExpertsConfig(count=8, per_token=2)
EXPERT_LAYOUTS = (
    Layout(),
    Layout(dp_replicate=2),
    Layout(dp_shard=2),
    Layout(dp_shard=16),  # more ranks than experts, of which none is cut
    Layout(dp_replicate=2, dp_shard=2),
    Layout(cp=2),
    Layout(pp=2),
    Layout(dp_shard=2, pp=2),
)
WITH_EXCHANGE = (
    Layout(dp_shard=2, ep=2),
    Layout(dp_shard=4, ep=2),
    Layout(dp_replicate=2, dp_shard=2, ep=2),
    Layout(cp=2, ep=2),
    Layout(tp=2),
    Layout(tp=2, ep=2),
    Layout(dp_shard=2, tp=2),
    Layout(dp_shard=2, tp=2, ep=4),
    Layout(dp_shard=2, pp=2, ep=2),
    Layout(tp=2, pp=2),
)
"""Layouts on which experts get tokens of other ranks."""

SHAPE = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 176,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "vocab_size": 512,
    "tie_word_embeddings": True,
}
"""`config.json` of a model."""


def simulated(config: CausalLMConfig, layout: Layout) -> Footprint:
    """The rank that needs most."""
    step = layout.num_ranks // layout.pp
    ranks = [simulate(config, layout, stage * step) for stage in range(layout.pp)]
    return max(ranks, key=lambda rank: rank.peak)


def check(config: CausalLMConfig, layout: Layout) -> None:
    real, found = simulated(config, layout), config.layout_memory(layout, on_gpu=False)
    assert found is not None
    for name in ("weights", "gradients", "optimizer"):
        # buffers, and the steps of an optimizer, count for nothing
        assert getattr(found, name) == pytest.approx(getattr(real, name), rel=0.01), name
    assert found.peak == pytest.approx(real.peak, rel=NEAR)


def draw(layout: Layout, seed: int, *, experts: bool = False) -> CausalLMConfig:
    """A configuration that works on a layout."""
    rng = random.Random(seed)
    while True:
        given: dict[str, Any] = {
            "hidden_size": rng.choice([64, 128, 256, 512]),
            "num_layers": rng.choice([4, 5]),
            "num_heads": rng.choice([4, 8]),
            "vocab_size": rng.choice([512, 4096, 32_000]),
            "sequence_length": rng.choice([64, 256]),
            "batch_size": rng.choice([16, 32]),
            "dtype": rng.choice(["float32", "bfloat16"]),
            "packing": rng.choice(["plain", "documents"]),
            "optimizer": rng.choice(["adamw", "lion"]),
            "activation_checkpointing": rng.random() < 0.3,
            "micro_batch_size": rng.choice([None, 4]) if layout.pp == 1 else None,
        }
        if experts:
            given["hidden_size"] //= 2
            given["intermediate_size"] = rng.choice([None, 64])
            given["experts"] = {
                "count": rng.choice([4, 16]),
                "per_token": rng.choice([1, 2, 4]),
                "balance": rng.choice([0.0, 0.01]),
            }
        config = CausalLMConfig.model_validate(given)
        if config.validate_layout(layout) is None:
            return config


LORA = ({"rank": 8}, {"rank": 32, "targets": ["q_proj", "v_proj"]})


def adapted(lora: dict[str, Any], **given: Any) -> SFTConfig:
    first = {"hidden_size": 128, "num_layers": 4, "num_heads": 4}
    return SFTConfig.model_validate(
        {"pretrain": first, "lora": lora, "eval_answers": 0, "sequence_length": 128, **given}
    )


@pytest.mark.parametrize(
    ("config", "layout"),
    [
        (CausalLMConfig(hidden_size=256, batch_size=16), Layout()),
        (CausalLMConfig(hidden_size=256, batch_size=16), Layout(dp_shard=2)),
        (CausalLMConfig(hidden_size=128, batch_size=16, experts=EXPERTS), Layout()),
        (CausalLMConfig(hidden_size=128, batch_size=16, experts=EXPERTS), Layout(dp_shard=2)),
        *((adapted(lora), Layout()) for lora in LORA),
    ],
    ids=["dense", "dense-fsdp", "experts", "experts-fsdp", "adapter", "adapter-few"],
)
def test_few_layouts(config: CausalLMConfig, layout: Layout) -> None:
    check(config, layout)


@pytest.mark.layouts
@pytest.mark.parametrize("experts", [False, True])
def test_any_layout(experts: bool, subtests: pytest.Subtests) -> None:
    for number, layout in enumerate(EXPERT_LAYOUTS if experts else LAYOUTS):
        with subtests.test(layout=str(layout)):
            check(draw(layout, number % 2, experts=experts), layout)


@pytest.mark.layouts
@pytest.mark.parametrize("layout", WITH_EXCHANGE, ids=str)
def test_experts_with_tokens_of_other_ranks(layout: Layout) -> None:
    check(draw(layout, 0, experts=True), layout)


@pytest.mark.slow
@pytest.mark.parametrize("layout", [one for one in LAYOUTS if one.tp == one.pp == 1], ids=str)
def test_adapter_on_any_layout(layout: Layout) -> None:
    for lora, dtype in zip(LORA, ("float32", "bfloat16"), strict=True):
        check(adapted(lora, dtype=dtype), layout)


@pytest.mark.slow
@pytest.mark.parametrize("kind", PIPELINED)
def test_types_of_models(tmp_path: Path, kind: str) -> None:
    shape = SHAPE | {"model_type": kind, "num_key_value_heads": 2, "head_dim": 16}
    shape |= {"rope_theta": 10_000.0}
    if kind == "mixtral":
        shape |= {"num_local_experts": 4, "num_experts_per_tok": 2}
    (tmp_path / "config.json").write_text(json.dumps(shape))
    config = CausalLMConfig(model_name_or_path=str(tmp_path), batch_size=16)
    for layout in (Layout(), Layout(dp_shard=2), Layout(pp=2)):
        check(config, layout)


def test_tokenizer_of_a_folder(tmp_path: Path) -> None:
    encoder = train_bpe(["a few words, and a few more words"], 300)
    encoder.tokenizer.save(str(tmp_path / "tokenizer.json"))
    config = CausalLMConfig(tokenizer=str(tmp_path))
    same = CausalLMConfig(vocab_size=encoder.size)
    assert memory(config, Layout()) == memory(same, Layout())


def memory(config: CausalLMConfig, layout: Layout) -> RankMemory:
    found = config.layout_memory(layout, on_gpu=False)
    assert found is not None
    return found


def test_model_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(SHAPE))
    saved = CausalLMConfig(model_name_or_path=str(tmp_path))
    assert memory(saved, Layout()) == memory(CausalLMConfig(num_heads=4), Layout())
    fewer = {**SHAPE, "num_key_value_heads": 2, "tie_word_embeddings": False}
    (tmp_path / "config.json").write_text(json.dumps(fewer))
    weights = 4 * (2 * 512 * 64 + 2 * (3 * 64**2 + 3 * 64 * 176 + 2 * 64) + 64)
    assert memory(saved, Layout()).weights == weights
    (tmp_path / "config.json").write_text(json.dumps({**SHAPE, "model_type": "gemma2"}))
    assert saved.layout_memory(Layout(), on_gpu=False) is None


def test_what_is_not_known() -> None:
    for given in ({"tokenizer": "a/hub"}, {"model_name_or_path": "hub"}):
        config = CausalLMConfig.model_validate(given)
        assert config.layout_memory(Layout(), on_gpu=False) is None
    one_block = adapted({"targets": ["0.self_attn.q_proj"]})
    assert one_block.layout_memory(Layout(), on_gpu=False) is None
    answers = resolve("grpo").Config.model_validate({"sft": {}})
    assert answers.layout_memory(Layout(), on_gpu=False) is None


def test_gpu_has_no_logits_of_all_tokens() -> None:
    config = CausalLMConfig(vocab_size=32_000, dtype="auto", sequence_length=1024, batch_size=64)
    on_cpu, on_gpu = (config.layout_memory(Layout(), on_gpu=gpu) for gpu in (False, True))
    assert on_cpu is not None
    assert on_gpu is not None
    assert on_gpu.activations < on_cpu.activations / 2
