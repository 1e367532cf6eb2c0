"""The memory of a language model on any layout, from its configuration; no torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from search_spaces.layout import Layout
from trainables.causal_lm.layouts.block_memory import ATTENTION, MLP, Adapter, Shape, Step
from trainables.causal_lm.layouts.rank_memory import rank_memory
from trainables.causal_lm.layouts.rules import PIPELINED, description_of
from trainables.common.lora import LoRAConfig
from trainables.common.start_model import tokens_of
from trainables.parallel.footprint import RankMemory


def layout_memory(
    config: Any, layout: Layout, *, on_gpu: bool, top_k: int = 0
) -> RankMemory | None:
    """What the rank needs that needs most; None for a model that is not known here.

    Args:
        config: a `CausalLMConfig`.
        layout: of the ranks, as `auto` offers them: its axes and `sequence_parallel` count.
        on_gpu: whether they have GPUs.
        top_k: as of `Step`.
    """
    start = config.start or config
    shape = _from_scratch(start) if start.model_name_or_path is None else _saved(start)
    if shape is None:
        return None
    adapter = _adapter(config.lora, shape) if config.lora else None
    if adapter is not None and not adapter.layers:
        return None
    step = Step(
        shape,
        batch=config.batch_size,
        micro=config.micro_batch_size,
        length=config.sequence_length,
        documents=config.packing == "documents",
        half=on_gpu if config.dtype == "auto" else config.dtype != "float32",
        recomputes=config.activation_checkpointing,
        optimizer=config.optimizer,
        fast=on_gpu and shape.kind == "llama" and not top_k,
        adapter=adapter,
        top_k=min(top_k, shape.vocab),
    )
    ranks = (rank_memory(step, layout, stage) for stage in range(layout.pp))
    return max(ranks, key=lambda memory: memory.peak)


def _from_scratch(config: Any) -> Shape | None:
    """Sizes of a new model; None if its tokenizer is not on this machine."""
    vocab, experts = config.vocab_size, config.experts
    if config.tokenizer is not None:
        try:
            vocab = len(tokens_of(Path(config.tokenizer).expanduser()))
        except ValueError:
            return None
    sizes = (config.hidden_size, config.mlp_size, config.heads, config.heads, config.num_layers)
    if experts is None:
        return Shape("llama", *sizes, vocab)
    chosen = {"per_token": experts.per_token, "balanced": experts.balance > 0}
    return Shape("mixtral", *sizes, vocab, experts=experts.count, **chosen)


def _saved(config: Any) -> Shape | None:
    """Sizes of a model in a folder; None if it is not on this machine, or of another type."""
    known = description_of(config.model_name_or_path)
    if known.get("model_type") not in PIPELINED:
        return None
    width, heads = known["hidden_size"], known["num_attention_heads"]
    if known.get("head_dim") not in (None, width // heads):
        return None
    mixed = known["model_type"] == "mixtral"
    return Shape(
        known["model_type"],
        width,
        known["intermediate_size"],
        heads,
        known.get("num_key_value_heads") or heads,
        known["num_hidden_layers"],
        known["vocab_size"],
        tied=bool(known.get("tie_word_embeddings", False)),
        experts=known["num_local_experts"] if mixed else 0,
        per_token=known["num_experts_per_tok"] if mixed else 0,
    )


def _adapter(lora: LoRAConfig, shape: Shape) -> Adapter:
    """An adapter; it has no layers if `targets` names some of one block only."""
    names = {f".self_attn.{name}" for name in ATTENTION}
    names |= set() if shape.experts else {f".mlp.{name}" for name in MLP}
    ends = [f".{target}" for target in lora.targets or (*ATTENTION, *MLP)]
    found = {name.rpartition(".")[2] for name in names if name.endswith(tuple(ends))}
    known = lora.targets is None or all(any(n.endswith(end) for n in names) for end in ends)
    return Adapter(lora.rank, frozenset(found if known else ()), drops=lora.dropout > 0)
