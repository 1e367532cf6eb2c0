"""The memory of the MLP of a block on one rank, dense or of experts, by arithmetic: no torch."""

from __future__ import annotations

from dataclasses import dataclass

from search_spaces.spec.layout import Layout


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
class Mlp:
    """The MLP of a block. Experts get equally many tokens.

    Attributes:
        width: of the residual stream.
        mlp: units, of one expert if there are some.
        experts: None: the MLP is dense.
        layout: of the ranks.
        half: whether it computes in 16 bits.
    """

    width: int
    mlp: int
    experts: Experts | None
    layout: Layout
    half: bool

    @property
    def _matrices(self) -> int:
        return 3 * self.width * self.mlp

    @property
    def in_block(self) -> int:
        """Weights that the block has with its other ones, before `dp_shard` cuts them."""
        if self.experts is None:
            return self._matrices // self.layout.tp
        return self.experts.count * self.width

    @property
    def apart(self) -> int:
        """Weights of the experts with which this rank computes."""
        return 0 if self.experts is None else self.experts.count * self._matrices // self.layout.ep

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

    @property
    def _padded(self) -> int:
        """As `apart`, where each rank has as many whole experts as the others: FSDP2 cuts none."""
        count, ranks = self.experts.count if self.experts else 1, self.layout.weight_parts
        return self.apart // count * -(-count // ranks) * ranks

    @property
    def _split(self) -> bool:
        """Whether each expert is cut, and gathered without its block; see `split_experts`."""
        return self.layout.ep * self.layout.tp > 1

    @property
    def _gathers(self) -> bool:
        """Whether FSDP2 has the experts."""
        layout = self.layout
        return self._split or (
            layout.shares_model and layout.weight_parts * layout.dp_replicate > 1
        )

    @property
    def _width(self) -> int:
        """Bytes of a number that an expert computes: autocast leaves their products alone."""
        return 2 if self.half and (self.experts is None or self._gathers) else 4

    def activations(self, tokens: int) -> int:
        """Bytes that wait for the backward pass, of so many tokens of this rank."""
        if self.experts is None:
            return int(4 * self._width * self.mlp / self.layout.tp * tokens)
        experts = self.experts
        of_pair = self._width * (2 * self.width + 4 * self.mlp) + 24
        of_token = 4 * experts.count * (1 + 2 * experts.balanced)
        return self._pairs(tokens) * of_pair + tokens * of_token

    def gradients(self, tokens: int) -> int:
        """Bytes in the backward pass beside them."""
        if self.experts is None:
            return 2 * self._width * self.mlp // self.layout.tp * tokens
        of_weights = 0 if self._gathers else 4 * self.apart // 3
        of_pair = max(2 * self._width * self.mlp, 12 * self.width)  # float32 where they are added
        return of_pair * self._pairs(tokens) + of_weights

    def _pairs(self, tokens: int) -> int:
        """Tokens of this rank's experts, counted once for each of their experts."""
        assert self.experts is not None
        return tokens * self.experts.per_token // self.layout.tp
