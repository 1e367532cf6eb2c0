"""Tiny models of many classes of `transformers`, with random weights that are not small."""

from __future__ import annotations

from typing import Any

import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM

VOCABULARY = 64
_SIZES = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 512,
    "sliding_window": 6,
    "attention_chunk_size": 8,
    "attention_dropout": 0.0,
    "num_experts": 4,
    "num_local_experts": 4,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
    "shared_expert_intermediate_size": 16,
    "n_group": 1,
    "topk_group": 1,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 2,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "q_lora_rank": 8,
    "kv_lora_rank": 8,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 8,
    "v_head_dim": 8,
    "is_decoder": True,
    "n_layer": 2,
    "n_head": 2,
    "n_embd": 32,
    "n_positions": 512,
    "num_layers": 2,
    "d_model": 32,
    "n_layers": 2,
    "n_heads": 2,
    "ffn_dim": 48,
    "word_embed_proj_dim": 32,
    "decoder_layers": 2,
    "decoder_attention_heads": 2,
    "decoder_ffn_dim": 48,
    "attention_heads": 2,
    "state_size": 8,
    "n_groups": 1,
    "mamba_n_heads": 4,
    "mamba_d_head": 16,
    "mamba_d_state": 8,
    "mamba_n_groups": 1,
    "mamba_chunk_size": 8,
    "chunk_size": 8,
    "lru_width": 32,
}
_LINEAR = {"layer_types": ["linear_attention", "full_attention"]}
_CONVOLUTION = {"layer_types": ["conv", "full_attention"], "block_auto_adjust_ff_dim": False}
_OTHERS: dict[str, dict[str, Any]] = {
    "lfm2": _CONVOLUTION,
    "lfm2_moe": _CONVOLUTION,
    "mamba2": {"num_heads": 4, "head_dim": 16},
    "qwen3_next": _LINEAR,
    "qwen3_5_text": _LINEAR,
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1},
    "falcon_h1": {"mamba_d_ssm": 64},
    "recurrent_gemma": {
        "num_hidden_layers": 3,
        "block_types": ["recurrent", "recurrent", "attention"],
    },
    "gpt_neo": {
        "attention_types": [[["global", "local"], 1]],
        "window_size": 6,
        "num_heads": 2,
    },
    "gptj": {"rotary_dim": 8},
    "qwen2": {"use_sliding_window": True, "max_window_layers": 1},
}


def tiny_model(kind: str) -> Any:
    """A model of a type, in evaluation mode.

    Args:
        kind: `model_type` of its configuration.
    """
    cls = CONFIG_MAPPING[kind]
    known = {name for base in cls.__mro__ for name in getattr(base, "__annotations__", {})}
    known |= set(getattr(cls, "attribute_map", {}))
    sizes = {name: size for name, size in _SIZES.items() if name in known}
    tokens = dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id"), 0)
    shape = cls(vocab_size=VOCABULARY, **{**tokens, **sizes, **_OTHERS.get(kind, {})})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        auto: Any = AutoModelForCausalLM
        model = auto.from_config(shape).eval()
        for parameter in model.parameters():
            if parameter.ndim >= 2:
                parameter.data.normal_(0, 0.15)
    return model
