"""The memory of a language model on any layout, from its configuration, by arithmetic: no torch.

The terms are those of `transformers` on tensors without content, where most are exact;
`tests/trainables/causal_lm/test_memory.py` compares them with simulated training steps. A layout
takes a millisecond here and seconds in a simulation, and `layout: auto` compares hundreds.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from search_spaces.layout import Layout
from trainables.causal_lm.layouts.block_memory import (
    ATTENTION,
    MLP,
    AdapterShape,
    BlockMemory,
    Shape,
    Step,
    block_memory,
)
from trainables.causal_lm.layouts.rules import PIPELINED
from trainables.causal_lm.lora import LoRAConfig
from trainables.parallel.footprint import RankMemory
from trainables.training.start_model import description_of, tokens_of


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
    if adapter is not None and not (adapter.layers and config.lora.is_plain):
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


def _adapter(lora: LoRAConfig, shape: Shape) -> AdapterShape:
    """An adapter; it has no layers if `targets` names some of one block only."""
    names = {f".self_attn.{name}" for name in ATTENTION}
    names |= set() if shape.experts else {f".mlp.{name}" for name in MLP}
    ends = [f".{target}" for target in lora.targets or (*ATTENTION, *MLP)]
    found = {name.rpartition(".")[2] for name in names if name.endswith(tuple(ends))}
    known = lora.targets is None or all(any(n.endswith(end) for n in names) for end in ends)
    return AdapterShape(lora.rank, frozenset(found if known else ()), drops=lora.dropout > 0)


_LOGITS_BYTES = 2**30
"""Float32 logits that exist at once on a GPU; see `trainables.training.cross_entropy`."""
_STATES = {"adamw": 2, "lion": 1, "muon": 1}
"""Averages that an optimizer keeps of each weight; of muon those of hidden matrices."""


def rank_memory(step: Step, layout: Layout, stage: int) -> RankMemory:
    """What a rank needs that has this place on the axis `pp`, in a step beyond the first."""
    shape, block = step.shape, block_memory(step, layout)
    weights = _weights(step, layout, stage, block)
    layers, last, trains = weights.layers, stage == layout.pp - 1, step.adapter is None
    # gradients of DistributedDataParallel, which has a copy of its own
    bucket = weights.trained if layout.num_ranks > 1 and not layout.shares_model else 0
    # gradients that are there before the last part of the batch is computed
    several = step.samples(layout) < step.batch // layout.data_parallel
    earlier = bucket + weights.trained * several
    if layout.pp > 1:  # FSDP2 cuts them after the last part
        earlier = layers * block.trained_whole + weights.apart * trains
    gradients = layers * block.trained * (earlier == bucket)  # of blocks, of this part of the batch
    in_block = block.backward
    if trains and layout.pp == 1:  # waits for that of the embedding, if both are one matrix
        in_block += _gradient_width(step, layout) * weights.embedding // 4
    loss = _loss(step, layout, weights) if last else 4 * shape.width * block.tokens
    waiting = layers * (block.inputs if step.recomputes else block.activations)
    kept = waiting * min(layout.num_microbatches, layout.pp - stage)  # 1f1b
    one, others = kept // max(1, layers), (max(1, layers) - 1) * gradients // max(1, layers)
    neighbours = (stage > 0) + (not last)
    passed = 4 * shape.width * block.tokens * layout.num_microbatches * neighbours
    root = weights.embedding * step.bytes // 4 * layout.gathers_weights  # gathered
    always = earlier + root + passed + 12 * step.top_k * block.tokens
    beside = max(
        always + kept + loss,
        always + kept + in_block,  # of the last block
        always + kept - one + block.after,
        always + others + one + in_block,  # of the first one
        always + gradients + _embedding_gradients(step, layout, weights) + block.gathered,
        bucket + weights.trained * (2 if step.optimizer == "lion" else 1),
    )
    peak = weights.kept + weights.optimizer + beside
    activations = max(0, beside - earlier)
    return RankMemory(weights.kept, weights.trained, weights.optimizer, activations, peak)


class _Weights(NamedTuple):
    """Of a rank, in bytes: `matrices` of tokens in `embedding`, which is `apart` from the blocks
    with the last norm, before they are cut; what it has `kept`, and of this `trained`."""

    layers: int
    matrices: int
    embedding: int
    apart: int
    kept: int
    trained: int
    optimizer: int


def _weights(step: Step, layout: Layout, stage: int, block: BlockMemory) -> _Weights:
    shape, trains = step.shape, step.adapter is None
    first, last = stage == 0, stage == layout.pp - 1
    # as of `layers_of_stages`, the first ranks have one more
    layers = shape.layers // layout.pp + (stage < shape.layers % layout.pp)
    matrices = 2 if first and last and not shape.tied else int(first or last)
    embedding = 4 * shape.vocab * shape.width // layout.tp * matrices
    apart = embedding + 4 * shape.width * last
    own = apart // layout.weight_parts
    kept, trained = layers * block.kept + own, layers * block.trained + own * trains
    optimizer = _STATES[step.optimizer] * trained
    if step.optimizer == "muon" and trains:
        optimizer += embedding // layout.weight_parts
    return _Weights(layers, matrices, embedding, apart, kept, trained, optimizer)


def _gradient_width(step: Step, layout: Layout) -> int:
    """Bytes of a gradient before it is cut."""
    return step.bytes if layout.gathers_weights else 4


def _embedding_gradients(step: Step, layout: Layout, weights: _Weights) -> int:
    """At the end of the backward pass: of output, embedding and their sum, before it is cut."""
    if step.adapter or not weights.matrices:
        return 0
    several = 3 if step.shape.tied and layout.pp == 1 else 1
    whole = weights.embedding // weights.matrices * layout.tp * (layout.tp > 1)
    return (several * weights.embedding + whole) * _gradient_width(step, layout) // 4


def _loss(step: Step, layout: Layout, weights: _Weights) -> int:
    """Between the last layer and the gradient of its output."""
    shape, gathers = step.shape, layout.gathers_weights
    tokens = step.samples(layout) * step.length // layout.cp
    if step.fast and layout.cuts_weights_only:  # without all logits at once
        logits = min(12 * shape.vocab * tokens, 3 * _LOGITS_BYTES)
        return (8 + step.bytes) * shape.width * tokens + logits + 8 * shape.vocab * shape.width
    cast = weights.embedding // 2 if step.half and not gathers else 0
    of_width = 12 if not step.half else (8 if gathers else 10)
    logits = (20 if step.top_k else 12) * shape.vocab + 40 * step.top_k
    return (of_width * shape.width + logits + 12) * tokens + cast
