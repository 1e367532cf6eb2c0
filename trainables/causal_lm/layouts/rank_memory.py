"""The memory of one rank in a training step of a Llama, by arithmetic: no torch.

The terms are those of `transformers` on tensors without content, where most are exact;
`tests/trainables/causal_lm/test_memory.py` compares them with simulated training steps. A layout
takes a millisecond here and seconds in a simulation, and `layout: auto` compares hundreds.
"""

from __future__ import annotations

from typing import NamedTuple

from search_spaces.layout import Layout
from trainables.causal_lm.layouts.block_memory import Block, Step, block_memory
from trainables.parallel.footprint import RankMemory

_LOGITS_BYTES = 2**30
"""Float32 logits that exist at once on a GPU; see `trainables.common.cross_entropy`."""
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


def _weights(step: Step, layout: Layout, stage: int, block: Block) -> _Weights:
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
