"""The memory of one transformer block on one rank, by arithmetic: no torch."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from search_spaces.layout import Layout
from trainables.causal_lm.layouts.mlp_memory import Mlp
from trainables.causal_lm.layouts.step import Step


@dataclass(frozen=True)
class Block:
    """A block of a rank. All results are in bytes.

    Attributes:
        step: what is computed.
        layout: of the ranks.
        samples: sequences that the rank computes at once.
    """

    step: Step
    layout: Layout
    samples: int

    @property
    def tokens(self) -> int:
        """Tokens that the rank computes at once."""
        return self.samples * self.step.length // self.layout.cp

    @cached_property
    def mlp(self) -> Mlp:
        """What there is in place of an MLP, or it."""
        return Mlp(self.step, self.layout)

    @cached_property
    def whole(self) -> int:
        """Weights, before `dp_shard` cuts them; without those of experts."""
        return 4 * (self._matrices + 2 * self.step.width) + self._adapter

    @cached_property
    def kept(self) -> int:
        """Weights of this rank."""
        return self.whole // self.layout.weight_parts + self.mlp.kept

    @property
    def trained(self) -> int:
        """Of `kept`, what has a gradient."""
        return self._adapter // self.layout.weight_parts if self.step.adapter else self.kept

    @property
    def trained_whole(self) -> int:
        """What has a gradient before it is cut, with that of experts."""
        return self._adapter if self.step.adapter else self.whole + 4 * self.mlp.apart

    @cached_property
    def gathered(self) -> int:
        """Weights or gradients before they are cut, float32; 0 if they never are."""
        return self.whole * self.layout.gathers_weights + 4 * self.mlp.gathered

    @property
    def inputs(self) -> int:
        """Activations that wait for the backward pass where the others are computed again."""
        stream = 2 if self.step.half and self.layout.gathers_weights else 4
        return stream * self.step.width * self.tokens // self._sequence_parts

    @cached_property
    def activations(self) -> int:
        """All activations that wait for the backward pass."""
        step, tp, cp = self.step, self.layout.tp, self.layout.cp
        of_width = self._of_norms / self._sequence_parts + self._of_inputs
        of_width += 4 * step.bytes / tp + 2 * step.bytes * (cp - 1)  # queries, keys, values, out
        each = of_width * step.width + 4 / tp * step.heads + 8 / self._sequence_parts
        masks = self.samples if step.documents else int(cp > 1)
        mask = masks * step.length**2 // cp * step.bytes
        cast = 2 * self._matrices if self._casts else 0
        of_adapter = self._of_adapter * self.tokens
        return (
            int(self.tokens * each) + mask + cast + of_adapter + self.mlp.activations(self.tokens)
        )

    @property
    def backward(self) -> int:
        """Beside what is kept, in the backward pass."""
        again = self.activations if self.step.recomputes else 0
        times = 3 if self.step.adapter is None else 2  # of this block and the next, and gradients
        gathered = times * self.gathered * self.step.bytes // 4
        gradients = 2 * self.step.bytes * self.step.width * self.tokens
        return again + gathered + gradients + self.mlp.gradients(self.tokens)

    @property
    def after(self) -> int:
        """When its activations are freed, and its gradients are cut, in float32."""
        return self.gathered * (4 + 2 * self.step.bytes) // 4 if self.step.adapter is None else 0

    @property
    def _matrices(self) -> int:
        """Weights of the matrices, on this rank before `dp_shard` cuts them."""
        attention = 2 * self.step.width**2 * (1 + self.step.kv_heads / self.step.heads)
        return int(attention) // self.layout.tp + self.mlp.in_block

    @cached_property
    def _adapter(self) -> int:
        """Weights of the adapter before they are cut."""
        adapter = self.step.adapter
        if adapter is None:
            return 0
        sizes = (sum(size) for name, size in self.step.linear.items() if name in adapter.layers)
        return 4 * adapter.rank * sum(sizes)

    @property
    def _of_norms(self) -> int:
        """Per unit of the residual stream: inputs, float32, and what gains multiply."""
        scaled = 0 if self.step.adapter else 4 if self._casts else self.step.bytes
        return 2 * (4 + scaled)

    @property
    def _of_inputs(self) -> int:
        """Per unit of the residual stream: inputs of linear layers that are trained.

        Autocast makes a copy of 16 bits for each layer.
        """
        adapter, total = self.step.adapter, 0
        for names in (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj")):
            count = sum(adapter is None or name in adapter.layers for name in names)
            total += 2 * count if self._casts else self.step.bytes * (count > 0)
        return total

    @property
    def _of_adapter(self) -> int:
        """Per token: what the adapter itself keeps."""
        adapter = self.step.adapter
        if adapter is None:
            return 0
        sizes = [size for name, size in self.step.linear.items() if name in adapter.layers]
        dropped = sum(inputs for inputs, _ in sizes) * (1 + self.step.bytes) * adapter.drops
        return len(sizes) * adapter.rank * self.step.bytes + dropped

    @property
    def _sequence_parts(self) -> int:
        """Ranks that share the activations of norms and residuals."""
        return self.layout.tp if self.layout.cuts_sequences else 1

    @property
    def _casts(self) -> bool:
        """Whether autocast makes copies of 16 bits; FSDP2 gathers such."""
        return self.step.half and not self.layout.gathers_weights
