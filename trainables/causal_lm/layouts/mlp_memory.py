"""The memory of the MLP of a block on one rank, dense or of experts, by arithmetic: no torch."""

from __future__ import annotations

from dataclasses import dataclass

from search_spaces.layout import Layout
from trainables.causal_lm.layouts.step import Step


@dataclass(frozen=True)
class Mlp:
    """The MLP of a block. Experts get equally many tokens."""

    step: Step
    layout: Layout

    @property
    def in_block(self) -> int:
        """Weights that the block has with its other ones, before `dp_shard` cuts them."""
        experts = self.step.experts
        return self._matrices // self.layout.tp if experts is None else experts.count * self._width

    @property
    def apart(self) -> int:
        """Weights of the experts with which this rank computes."""
        experts = self.step.experts
        return 0 if experts is None else experts.count * self._matrices // self.layout.ep

    @property
    def kept(self) -> int:
        """Float32 bytes of the part of the experts that the rank with most of them keeps."""
        if self._split:
            return 4 * self.apart * self.layout.ep // self.layout.expert_parts
        return 4 * self._padded // self.layout.weight_parts

    @property
    def gathered(self) -> int:
        """Weights of `apart` that are gathered before the block computes."""
        return (self.apart if self._split else self._padded) * self._gathers

    def activations(self, tokens: int) -> int:
        """Bytes that wait for the backward pass, of so many tokens of this rank."""
        adapter, experts = self.step.adapter, self.step.experts
        if experts is None:
            inputs = adapter is None or "down_proj" in adapter.layers
            return (3 + inputs) * self._bytes * self.step.mlp * tokens // self.layout.tp
        trained = adapter is None
        of_pair = self._bytes * ((1 + trained) * self._width + (3 + trained) * self.step.mlp) + 24
        of_token = 4 * experts.count * (1 + 2 * experts.balanced)
        return self._pairs(tokens) * of_pair + tokens * of_token

    def gradients(self, tokens: int) -> int:
        """Bytes in the backward pass beside them."""
        if self.step.experts is None:
            return 2 * self._bytes * self.step.mlp // self.layout.tp * tokens
        of_pair = max(2 * self._bytes * self.step.mlp, 12 * self._width)  # float32 where it adds
        of_weights = 0 if self._gathers or self.step.adapter else 4 * self.apart // 3
        return of_pair * self._pairs(tokens) + of_weights

    @property
    def _width(self) -> int:
        return self.step.width

    @property
    def _matrices(self) -> int:
        """Weights of the MLP, or of one expert."""
        return 3 * self._width * self.step.mlp

    @property
    def _split(self) -> bool:
        """Whether each expert is cut, and gathered without its block; see `split_experts`."""
        return self.layout.ep * self.layout.tp > 1

    @property
    def _padded(self) -> int:
        """As `apart`, where each rank has as many whole experts as the others: FSDP2 cuts none."""
        count = self.step.experts.count if self.step.experts else 1
        ranks = self.layout.weight_parts
        return self.apart // count * -(-count // ranks) * ranks

    @property
    def _gathers(self) -> bool:
        """Whether FSDP2 has the experts."""
        return self._split or self.layout.gathers_weights

    @property
    def _bytes(self) -> int:
        """Of a number that the MLP computes: autocast leaves the products of experts alone."""
        return self.step.bytes if self.step.experts is None or self._gathers else 4

    def _pairs(self, tokens: int) -> int:
        """Tokens of this rank's experts, counted once for each of their experts."""
        assert self.step.experts is not None
        return tokens * self.step.experts.per_token // self.layout.tp
