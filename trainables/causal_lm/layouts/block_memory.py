"""The memory of one transformer block on one rank, by arithmetic: no torch."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from search_spaces.layout import Layout

ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
MLP = ("gate_proj", "up_proj", "down_proj")


class Shape(NamedTuple):
    """Sizes of a Llama.

    Attributes:
        kind: type of the model.
        width, mlp, heads, kv_heads, layers, vocab: `mlp` is of one expert.
        tied: whether embedding and output are one matrix.
        experts: in place of each MLP; 0: there are none.
        per_token: experts that compute a token.
        balanced: whether a loss balances the use of experts.
    """

    kind: str
    width: int
    mlp: int
    heads: int
    kv_heads: int
    layers: int
    vocab: int
    tied: bool = True
    experts: int = 0
    per_token: int = 0
    balanced: bool = False

    @property
    def linear(self) -> Mapping[str, tuple[int, int]]:
        """Inputs and outputs of the linear layers of a block."""
        width, keys = self.width, self.width * self.kv_heads // self.heads
        found = dict.fromkeys(ATTENTION, (width, width))
        found |= dict.fromkeys(("k_proj", "v_proj"), (width, keys))
        if not self.experts:
            found |= dict.fromkeys(MLP, (width, self.mlp)) | {"down_proj": (self.mlp, width)}
        return found


class AdapterShape(NamedTuple):
    """Low-rank matrices, which alone are trained.

    Attributes:
        rank: of each.
        layers: of a block that have them, of `ATTENTION` and `MLP`.
        drops: whether inputs are dropped.
    """

    rank: int
    layers: Collection[str]
    drops: bool


class Step(NamedTuple):
    """What decides the memory of a training step.

    Attributes:
        shape: of the model.
        batch: sequences of an optimizer step, of all ranks together.
        micro: sequences that a rank computes at once; None: all of its own.
        length: tokens of a sequence.
        documents: whether attention has a mask for each sequence.
        half: whether it computes in 16 bits.
        recomputes: whether a block's activations are computed again in the backward pass.
        optimizer: its name.
        fast: whether ranks that compute whole layers have the kernels of a GPU.
        adapter: None: all weights are trained.
        top_k: tokens of a teacher that are kept for each position; 0: there is no teacher.
    """

    shape: Shape
    batch: int
    micro: int | None
    length: int
    documents: bool
    half: bool
    recomputes: bool
    optimizer: str
    fast: bool
    adapter: AdapterShape | None
    top_k: int

    @property
    def bytes(self) -> int:
        """Of a computed number."""
        return 2 if self.half else 4

    def samples(self, layout: Layout) -> int:
        """Sequences that a rank computes at once."""
        samples = self.batch // layout.data_parallel
        if layout.pp > 1:
            return samples // layout.num_microbatches
        return min(samples, self.micro or samples)


class BlockMemory(NamedTuple):
    """Bytes of a transformer block on a rank.

    Attributes:
        tokens: that the rank computes at once, a number.
        kept: weights of this rank; `trained` of them have a gradient.
        trained_whole: gradients before they are cut.
        gathered: weights or gradients before they are cut, float32; 0 if they never are.
        inputs: activations that wait for the backward pass where the others are computed again.
        activations: all that wait for the backward pass.
        backward: in the backward pass, beside them.
        after: when they are freed, and gradients are cut, in float32.
    """

    tokens: int
    kept: int
    trained: int
    trained_whole: int
    gathered: int
    inputs: int
    activations: int
    backward: int
    after: int


def block_memory(step: Step, layout: Layout) -> BlockMemory:
    """What a block of a rank needs."""
    shape, adapter, width = step.shape, step.adapter, step.shape.width
    tokens = step.samples(layout) * step.length // layout.cp
    mlp = (_experts if shape.experts else _dense)(step, layout, tokens)
    attention = int(2 * width**2 * (1 + shape.kv_heads / shape.heads))
    matrices = attention // layout.tp + mlp.in_block
    adapted = [size for name, size in shape.linear.items() if adapter and name in adapter.layers]
    added = 4 * adapter.rank * sum(map(sum, adapted)) if adapter else 0
    whole = 4 * (matrices + 2 * width) + added
    kept = whole // layout.weight_parts + mlp.kept
    gathered = whole * layout.gathers_weights + 4 * mlp.gathered
    stream = 2 if step.half and layout.gathers_weights else 4
    parts = layout.tp if layout.cuts_sequences else 1  # ranks that share norms and residuals
    # autocast makes copies of 16 bits; FSDP2 gathers such
    casts = step.half and not layout.gathers_weights
    activations = int(tokens * _per_token(step, layout, parts, casts=casts)) + mlp.activations
    masks = step.samples(layout) if step.documents else int(layout.cp > 1)
    activations += masks * step.length**2 // layout.cp * step.bytes + 2 * matrices * casts
    if adapter:
        dropped = sum(inputs for inputs, _ in adapted) * (1 + step.bytes) * adapter.drops
        activations += (len(adapted) * adapter.rank * step.bytes + dropped) * tokens
    times = 2 if adapter else 3  # of this block and the next, and gradients
    return BlockMemory(
        tokens,
        kept,
        trained=added // layout.weight_parts if adapter else kept,
        trained_whole=added if adapter else whole + 4 * mlp.apart,
        gathered=gathered,
        inputs=stream * width * tokens // parts,
        activations=activations,
        backward=activations * step.recomputes
        + times * gathered * step.bytes // 4
        + 2 * step.bytes * width * tokens
        + mlp.gradients,
        after=0 if adapter else gathered * (4 + 2 * step.bytes) // 4,
    )


def _per_token(step: Step, layout: Layout, parts: int, *, casts: bool) -> float:
    """Activations of attention and norms."""
    adapter, tp = step.adapter, layout.tp
    scaled = 0 if adapter else 4 if casts else step.bytes  # what gains multiply
    inputs = 0  # of linear layers that are trained; autocast makes a copy for each
    for names in (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj")):
        count = sum(adapter is None or name in adapter.layers for name in names)
        inputs += 2 * count if casts else step.bytes * (count > 0)
    of_width = 2 * (4 + scaled) / parts + inputs
    of_width += 4 * step.bytes / tp + 2 * step.bytes * (layout.cp - 1)  # queries, keys, values, out
    return of_width * step.shape.width + 4 / tp * step.shape.heads + 8 / parts


class _Mlp(NamedTuple):
    """The MLP of a block on a rank.

    Attributes:
        in_block: weights that the block has with its other ones, before `dp_shard` cuts them.
        activations: bytes that wait for the backward pass.
        gradients: bytes in the backward pass beside them.
        apart: weights of the experts with which this rank computes.
        kept: bytes of the part of the experts that the rank with most of them keeps.
        gathered: weights of `apart` that are gathered before the block computes.
    """

    in_block: int
    activations: int
    gradients: int
    apart: int = 0
    kept: int = 0
    gathered: int = 0


def _dense(step: Step, layout: Layout, tokens: int) -> _Mlp:
    shape, inputs = step.shape, step.adapter is None or "down_proj" in step.adapter.layers
    return _Mlp(
        3 * shape.width * shape.mlp // layout.tp,
        (3 + inputs) * step.bytes * shape.mlp * tokens // layout.tp,
        2 * step.bytes * shape.mlp // layout.tp * tokens,
    )


def _experts(step: Step, layout: Layout, tokens: int) -> _Mlp:
    """Experts, which get equally many tokens."""
    shape, trained = step.shape, step.adapter is None
    apart = shape.experts * 3 * shape.width * shape.mlp // layout.ep
    if layout.ep * layout.tp > 1:  # each is cut, and gathered without its block: `split_experts`
        whole, kept, gathers = apart, 4 * apart * layout.ep // layout.expert_parts, True
    else:  # FSDP2 cuts none: each rank has as many whole experts as the others
        ranks, gathers = layout.weight_parts, layout.gathers_weights
        whole = apart // shape.experts * -(-shape.experts // ranks) * ranks
        kept = 4 * whole // ranks
    size = step.bytes if gathers else 4  # autocast leaves their products alone
    pairs = tokens * shape.per_token // layout.tp  # of a token and one of its experts
    of_pair = size * ((1 + trained) * shape.width + (3 + trained) * shape.mlp) + 24
    of_token = 4 * shape.experts * (1 + 2 * shape.balanced)
    backward = max(2 * size * shape.mlp, 12 * shape.width)  # float32 where it adds
    return _Mlp(
        shape.experts * shape.width,
        pairs * of_pair + tokens * of_token,
        backward * pairs + (0 if gathers or not trained else 4 * apart // 3),
        apart,
        kept,
        whole * gathers,
    )
