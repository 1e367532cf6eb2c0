"""The memory of a language model on any layout, from its configuration; no torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from search_spaces.layout import Layout
from trainables.causal_lm.layouts.rank_memory import rank_memory
from trainables.causal_lm.layouts.rules import PIPELINED, description_of
from trainables.causal_lm.layouts.step import ATTENTION, MLP, Adapter, Experts, Step
from trainables.causal_lm.lora import LoRAConfig
from trainables.parallel.footprint import RankMemory
from trainables.training.start_model import tokens_of


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
    kind = shape.pop("kind")
    adapter = _adapter(config.lora, experts=kind == "mixtral") if config.lora else None
    if adapter is not None and not adapter.layers:
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
        fast=on_gpu and kind == "llama" and not top_k,
        adapter=adapter,
        top_k=min(top_k, shape["vocab"]),
    )
    ranks = (rank_memory(step, layout, stage) for stage in range(layout.pp))
    return max(ranks, key=lambda memory: memory.peak)


def _from_scratch(config: Any) -> dict[str, Any] | None:
    """Sizes of a new model; None if its tokenizer is not on this machine."""
    vocab, experts = config.vocab_size, config.experts
    if config.tokenizer is not None:
        try:
            vocab = len(tokens_of(Path(config.tokenizer).expanduser()))
        except ValueError:
            return None
    return {
        "kind": "llama" if experts is None else "mixtral",
        "width": config.hidden_size,
        "mlp": config.mlp_size,
        "heads": config.heads,
        "kv_heads": config.heads,
        "layers": config.num_layers,
        "vocab": vocab,
        "tied": True,
        "experts": experts and Experts(experts.count, experts.per_token, experts.balance > 0),
    }


def _saved(config: Any) -> dict[str, Any] | None:
    """Sizes of a model in a folder; None if it is not on this machine, or of another type."""
    told = description_of(config.model_name_or_path)
    if (kind := told.get("model_type")) not in PIPELINED:
        return None
    if told.get("head_dim") not in (None, told["hidden_size"] // told["num_attention_heads"]):
        return None
    experts = None
    if kind == "mixtral":
        experts = Experts(told["num_local_experts"], told["num_experts_per_tok"], balanced=False)
    return {
        "kind": kind,
        "width": told["hidden_size"],
        "mlp": told["intermediate_size"],
        "heads": told["num_attention_heads"],
        "kv_heads": told.get("num_key_value_heads") or told["num_attention_heads"],
        "layers": told["num_hidden_layers"],
        "vocab": told["vocab_size"],
        "tied": bool(told.get("tie_word_embeddings", False)),
        "experts": experts,
    }


def _adapter(lora: LoRAConfig, *, experts: bool) -> Adapter:
    """An adapter; it has no layers if `targets` names some of one block only."""
    names = {f".self_attn.{name}" for name in ATTENTION}
    names |= set() if experts else {f".mlp.{name}" for name in MLP}
    ends = [f".{target}" for target in lora.targets or (*ATTENTION, *MLP)]
    found = {name.rpartition(".")[2] for name in names if name.endswith(tuple(ends))}
    known = lora.targets is None or all(any(n.endswith(end) for n in names) for end in ends)
    return Adapter(lora.rank, frozenset(found if known else ()), drops=lora.dropout > 0)
