"""The memory of a language model on any layout, from its configuration; no torch."""

from __future__ import annotations

from typing import Any

from search_spaces.spec.layout import Layout
from trainables.causal_lm.layouts.mlp_memory import Experts
from trainables.causal_lm.layouts.rank_memory import Step, rank_memory
from trainables.causal_lm.layouts.rules import PIPELINED, description_of
from trainables.parallel.footprint import RankMemory


def layout_memory(config: Any, layout: Layout, *, on_gpu: bool) -> RankMemory | None:
    """What the rank needs that needs most; None for a model that is not known here.

    Args:
        config: a `CausalLMConfig`.
        layout: of the ranks.
        on_gpu: whether they have GPUs.
    """
    shape = _shape(getattr(config, "start", None) or config)
    if shape is None or config.lora is not None:
        return None
    step = Step(
        **shape,
        batch=config.batch_size,
        micro=config.micro_batch_size,
        length=config.sequence_length,
        documents=config.packing == "documents",
        half=on_gpu if config.dtype == "auto" else config.dtype != "float32",
        recomputes=config.activation_checkpointing,
        optimizer=config.optimizer,
        on_gpu=on_gpu,
    )
    ranks = (rank_memory(step, layout, stage) for stage in range(layout.pp))
    return max(ranks, key=lambda memory: memory.peak)


def _shape(config: Any) -> dict[str, Any] | None:
    """Sizes of a model; None if files would have to be read that are not here, or it is another."""
    if config.tokenizer is not None:
        return None
    if config.model_name_or_path is None:
        experts = config.experts
        return {
            "width": config.hidden_size,
            "mlp": config.mlp_size,
            "heads": config.heads,
            "kv_heads": config.heads,
            "layers": config.num_layers,
            "vocab": config.vocab_size,
            "tied": True,
            "experts": experts and Experts(experts.count, experts.per_token, experts.balance > 0),
        }
    told = description_of(config.model_name_or_path)
    if told.get("model_type") not in PIPELINED:
        return None
    if told.get("head_dim") not in (None, told["hidden_size"] // told["num_attention_heads"]):
        return None
    return {
        "width": told["hidden_size"],
        "mlp": told["intermediate_size"],
        "heads": told["num_attention_heads"],
        "kv_heads": told.get("num_key_value_heads") or told["num_attention_heads"],
        "layers": told["num_hidden_layers"],
        "vocab": told["vocab_size"],
        "tied": bool(told.get("tie_word_embeddings", False)),
    }
