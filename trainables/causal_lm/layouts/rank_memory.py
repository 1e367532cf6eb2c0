"""The memory of one rank in a training step of a Llama, by arithmetic: no torch.

The terms are those of `transformers` on tensors without content, where most are exact;
`tests/trainables/causal_lm/test_memory.py` compares them with simulated training steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from search_spaces.layout import Layout
from trainables.causal_lm.layouts.block_memory import Block
from trainables.causal_lm.layouts.step import Step
from trainables.parallel.footprint import RankMemory

_LOGITS_BYTES = 2**30
"""Float32 logits that exist at once on a GPU; see `trainables.training.cross_entropy`."""
_STATES = {"adamw": 2, "lion": 1, "muon": 1}
"""Averages that an optimizer keeps of each weight; of muon those of hidden matrices."""


def rank_memory(step: Step, layout: Layout, stage: int) -> RankMemory:
    """What a rank needs that has this place on the axis `pp`."""
    return _Rank(step, layout, stage).memory


@dataclass(frozen=True)
class _Rank:
    """A rank with the layers of one place on the axis `pp`. All results are in bytes."""

    step: Step
    layout: Layout
    stage: int

    @property
    def memory(self) -> RankMemory:
        """Of a training step beyond the first."""
        weights, optimizer, beside = self._weights, self._optimizer, max(self._moments)
        activations = max(0, beside - self._earlier)
        peak = weights + optimizer + beside
        return RankMemory(weights, self._trained, optimizer, activations, peak)

    @property
    def _moments(self) -> tuple[int, ...]:
        """What there is beside weights and optimizer, when it may be most."""
        beside = self._earlier + self._root + self._passed + self._targets
        kept, updates = self._kept * self._in_flight, 2 if self.step.optimizer == "lion" else 1
        layers = max(1, self._layers)
        others = (layers - 1) * self._block_gradients // layers
        in_block = self._block.backward + self._head_gradient
        ends = self._embedding_gradients + self._block.gathered
        return (
            beside + kept + self._loss,
            beside + kept + in_block,  # of the last block
            beside + kept - kept // layers + self._block.after,
            beside + others + kept // layers + in_block,  # of the first one
            beside + self._block_gradients + ends,
            self._bucket + self._trained * updates,
        )

    @cached_property
    def _block(self) -> Block:
        return Block(self.step, self.layout, self._samples)

    @property
    def _is_first(self) -> bool:
        return self.stage == 0

    @property
    def _is_last(self) -> bool:
        return self.stage == self.layout.pp - 1

    @cached_property
    def _layers(self) -> int:
        """Of all its stages: as of `layers_of_stages`, the first ranks have one more."""
        layers, ranks = self.step.layers, self.layout.pp
        return layers // ranks + (self.stage < layers % ranks)

    @property
    def _in_flight(self) -> int:
        """Microbatches that wait for their backward pass at once."""
        return min(self.layout.num_microbatches, self.layout.pp - self.stage)  # 1f1b

    @cached_property
    def _embedding(self) -> int:
        """Of each matrix of tokens that is on this rank, gathered."""
        return 4 * self.step.vocab * self.step.width // self.layout.tp * self._ends

    @property
    def _ends(self) -> int:
        """Matrices of tokens that this rank has."""
        both = self._is_first and self._is_last and not self.step.tied
        return 2 if both else int(self._is_first or self._is_last)

    @property
    def _apart(self) -> int:
        """Weights beside those of blocks, before they are cut."""
        return self._embedding + 4 * self.step.width * self._is_last

    @cached_property
    def _weights(self) -> int:
        return self._layers * self._block.kept + self._apart // self.layout.weight_parts

    @cached_property
    def _trained(self) -> int:
        """Of `_weights`, what has a gradient."""
        apart = 0 if self.step.adapter else self._apart // self.layout.weight_parts
        return self._layers * self._block.trained + apart

    @property
    def _optimizer(self) -> int:
        found = _STATES[self.step.optimizer] * self._trained
        if self.step.optimizer == "muon" and self.step.adapter is None:
            found += self._embedding // self.layout.weight_parts
        return found

    @property
    def _bucket(self) -> int:
        """Gradients of DistributedDataParallel, which has a copy of its own."""
        return self._trained if self.layout.num_ranks > 1 and not self.layout.shares_model else 0

    @cached_property
    def _earlier(self) -> int:
        """Gradients that are there before the last part of the batch is computed."""
        if self.layout.pp > 1:  # FSDP2 cuts them after the last part
            apart = 0 if self.step.adapter else self._apart
            return self._layers * self._block.trained_whole + apart
        several = self._samples < self.step.batch // self.layout.data_parallel
        return self._bucket + self._trained * several

    @property
    def _block_gradients(self) -> int:
        """Gradients of this part of the batch, without those of matrices of tokens."""
        alone = self._earlier == self._bucket
        return self._layers * self._block.trained * alone

    @property
    def _head_gradient(self) -> int:
        """Waits for that of the embedding, if both are one matrix of this rank."""
        if self.step.adapter or self.layout.pp > 1:
            return 0
        return self._gradient_width * self._embedding // 4

    @property
    def _embedding_gradients(self) -> int:
        """At the end of the backward pass: of output, embedding and their sum, before it is cut."""
        if self.step.adapter or not self._ends:
            return 0
        whole = self._embedding // self._ends * self.layout.tp
        several = 3 if self.step.tied and self.layout.pp == 1 else 1
        size = several * self._embedding + whole * (self.layout.tp > 1)
        return size * self._gradient_width // 4

    @property
    def _gradient_width(self) -> int:
        """Bytes of a gradient before it is cut."""
        return self.step.bytes if self.layout.gathers_weights else 4

    @cached_property
    def _samples(self) -> int:
        """Sequences that the rank computes at once."""
        samples = self.step.batch // self.layout.data_parallel
        if self.layout.pp > 1:
            return samples // self.layout.num_microbatches
        return min(samples, self.step.micro or samples)

    @property
    def _kept(self) -> int:
        """Activations of all layers that wait for the backward pass, for one part of the batch."""
        block = self._block
        return self._layers * (block.inputs if self.step.recomputes else block.activations)

    @property
    def _loss(self) -> int:
        """Between the last layer and the gradient of its output."""
        step, tokens, gathers = self.step, self._block.tokens, self.layout.gathers_weights
        if not self._is_last:
            return 4 * step.width * tokens
        if step.fast and self.layout.cuts_weights_only:
            return self._fused_loss
        cast = self._embedding // 2 if step.half and not gathers else 0
        of_width = 12 if not step.half else (8 if gathers else 10)
        logits = (20 if step.top_k else 12) * step.vocab + 40 * step.top_k
        return (of_width * step.width + logits + 12) * tokens + cast

    @property
    def _targets(self) -> int:
        """Tokens and log-probabilities of a teacher, of this part of the batch."""
        return 12 * self.step.top_k * self._block.tokens

    @property
    def _fused_loss(self) -> int:
        """As `_loss`, without all logits at once."""
        step, tokens = self.step, self._block.tokens
        logits = min(12 * step.vocab * tokens, 3 * _LOGITS_BYTES)
        matrix = 4 * step.vocab * step.width
        return (8 + self.step.bytes) * step.width * tokens + logits + 2 * matrix

    @property
    def _root(self) -> int:
        """Gathered weights of embedding and output."""
        return self._embedding * self.step.bytes // 4 if self.layout.gathers_weights else 0

    @property
    def _passed(self) -> int:
        """Buffers for activations of stages before and gradients of those after, per microbatch."""
        neighbours = 2 - self._is_first - self._is_last
        each = 4 * self.step.width * self._block.tokens
        return each * self.layout.num_microbatches * neighbours
