"""What one rank of a layout needs for a training step: memory, bytes to send, and operations."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Traffic:
    """What a rank sends on one axis.

    Attributes:
        bytes: sent by this rank.
        messages: that it sends one after another; each waits for the network's latency.
    """

    bytes: int = 0
    messages: int = 0

    def add(self, size: int, messages: int = 1) -> None:
        """Count a message, or several of this size in all."""
        self.bytes += size
        self.messages += messages


@dataclass(frozen=True)
class RankMemory:
    """What a rank has in a training step beyond the first one, in bytes.

    Attributes:
        weights: of parameters and buffers that the rank keeps.
        gradients: when the optimizer reads them.
        optimizer: of its state.
        activations: the most at a time of what is none of the others: what the backward pass
            needs, weights of other ranks that are gathered, and intermediate values.
        peak: the most of all at a time; not all have their most at the same time.
    """

    weights: int
    gradients: int
    optimizer: int
    activations: int
    peak: int


@dataclass(frozen=True)
class Footprint(RankMemory):
    """What a simulated or measured step needs besides.

    Attributes:
        flops: floating-point operations of matrix products and attention.
        traffic: by axis; `dp_shard` includes `cp`'s part in it, and `all` is every rank.
    """

    flops: int
    traffic: dict[str, Traffic] = field(default_factory=dict)


SENT = {
    # operation to the passes around a ring in which all bytes but one rank's part are sent
    "allreduce_": 2,
    "all_reduce": 2,
    "all_reduce_": 2,
    "_allgather_base_": 1,
    "allgather_": 1,
    "all_gather_into_tensor": 1,
    "_reduce_scatter_base_": 1,
    "reduce_scatter_": 1,
    "reduce_scatter_tensor": 1,
    "broadcast_": 1,
    "broadcast": 1,
    "alltoall_base_": 1,
    "all_to_all_single": 1,
}
"""Ring passes of each collective of torch. In a pass a rank sends (n - 1) / n of the bytes, in
n - 1 messages (Patarasuk and Yuan 2009). A broadcast and an all-to-all cost as much."""


def ring(operation: str, size: int, ranks: int) -> Traffic:
    """What one rank sends in a collective.

    Args:
        operation: of `SENT`, or `send`; others send nothing.
        size: bytes of the whole tensor: what an all-gather returns, and a reduce-scatter takes.
        ranks: of the group.
    """
    if operation == "send":
        return Traffic(size, 1)
    passes = SENT.get(operation, 0)
    return Traffic(passes * size * (ranks - 1) // ranks, passes * (ranks - 1))
