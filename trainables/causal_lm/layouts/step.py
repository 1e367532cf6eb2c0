"""What decides the memory of a training step of a language model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
MLP = ("gate_proj", "up_proj", "down_proj")


@dataclass(frozen=True)
class Experts:
    """A mixture of experts in place of an MLP.

    Attributes:
        count: of a block.
        per_token: that compute a token.
        balanced: whether a loss balances their use.
    """

    count: int
    per_token: int
    balanced: bool


@dataclass(frozen=True)
class Adapter:
    """Low-rank matrices, which alone are trained.

    Attributes:
        rank: of each.
        layers: of a block that have them, of `ATTENTION` and `MLP`.
        drops: whether inputs are dropped.
    """

    rank: int
    layers: frozenset[str]
    drops: bool


@dataclass(frozen=True)
class Step:
    """What decides the memory of a training step.

    Attributes:
        width, mlp, heads, kv_heads, layers, vocab: sizes of the model; `mlp` is of one expert.
        tied: whether embedding and output are one matrix.
        batch: sequences of an optimizer step, of all ranks together.
        micro: sequences that a rank computes at once; None: all of its own.
        length: tokens of a sequence.
        documents: whether attention has a mask for each sequence.
        half: whether it computes in 16 bits.
        recomputes: whether a block's activations are computed again in the backward pass.
        optimizer: its name.
        fast: whether ranks that compute whole layers have the kernels of a GPU.
        experts: in place of each MLP; None: there are none.
        adapter: None: all weights are trained.
        top_k: tokens of a teacher that are kept for each position; 0: there is no teacher.
    """

    width: int
    mlp: int
    heads: int
    kv_heads: int
    layers: int
    vocab: int
    tied: bool
    batch: int
    micro: int | None
    length: int
    documents: bool
    half: bool
    recomputes: bool
    optimizer: str
    fast: bool
    experts: Experts | None = None
    adapter: Adapter | None = None
    top_k: int = 0

    @property
    def bytes(self) -> int:
        """Of a computed number."""
        return 2 if self.half else 4

    @property
    def linear(self) -> Mapping[str, tuple[int, int]]:
        """Inputs and outputs of the linear layers of a block."""
        width, keys = self.width, self.width * self.kv_heads // self.heads
        found = dict.fromkeys(ATTENTION, (width, width))
        found |= dict.fromkeys(("k_proj", "v_proj"), (width, keys))
        if self.experts is None:
            found |= dict.fromkeys(MLP, (width, self.mlp)) | {"down_proj": (self.mlp, width)}
        return found
