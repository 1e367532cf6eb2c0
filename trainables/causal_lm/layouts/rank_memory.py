"""The memory of one rank in a training step of a Llama, by arithmetic: no torch.

The terms are those of `transformers` on tensors without content, where most are exact;
`tests/trainables/causal_lm/test_memory.py` compares them with simulated training steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from search_spaces.spec.layout import Layout
from trainables.causal_lm.layouts.mlp_memory import Experts, Mlp
from trainables.parallel.footprint import RankMemory

_LOGITS_BYTES = 2**30
"""Float32 logits that exist at once on a GPU; see `trainables.common.cross_entropy`."""
_STATES = {"adamw": 2, "lion": 1, "muon": 1}
"""Averages that an optimizer keeps of each weight; of muon those of hidden matrices."""


@dataclass(frozen=True)
class Step:
    """What decides the memory of a training step.

    Attributes:
        width, mlp, heads, kv_heads, layers, vocab: sizes of the model.
        tied: whether embedding and output are one matrix.
        batch: sequences of an optimizer step, of all ranks together.
        micro: sequences that a rank computes at once; None: all of its own.
        length: tokens of a sequence.
        documents: whether attention has a mask for each sequence.
        half: whether it computes in 16 bits.
        recomputes: whether a block's activations are computed again in the backward pass.
        optimizer: its name.
        on_gpu: whether ranks that compute whole layers have the kernels of a GPU.
        experts: in place of each MLP; None: there are none.
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
    on_gpu: bool
    experts: Experts | None = None


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
        return RankMemory(weights, weights, optimizer, activations, weights + optimizer + beside)

    @property
    def _moments(self) -> tuple[int, ...]:
        """What there is beside weights and optimizer, when it may be most."""
        beside = self._earlier + self._root + self._passed
        kept, updates = self._kept * self._in_flight, 2 if self.step.optimizer == "lion" else 1
        layers = max(1, self._layers)
        others = (layers - 1) * self._block_gradients // layers
        in_block = self._backward + self._head_gradient
        return (
            beside + kept + self._loss,
            beside + kept + in_block,  # of the last block
            beside + others + kept // layers + in_block,  # of the first one
            beside + self._block_gradients + self._embedding_gradients + self._gathered_block,
            self._bucket + self._weights * updates,
        )

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
        if self.layout.pp == 1:
            return 1
        if self.layout.schedule == "1f1b":
            return min(self.layout.num_microbatches, self.layout.pp - self.stage)
        return self.layout.num_microbatches

    @cached_property
    def _mlp(self) -> Mlp:
        step = self.step
        return Mlp(step.width, step.mlp, step.experts, self.layout, half=step.half)

    @cached_property
    def _block_matrices(self) -> int:
        """Weights of the matrices of one block, on this rank before `dp_shard` cuts them."""
        step = self.step
        attention = 2 * step.width**2 * (1 + step.kv_heads / step.heads)
        return int(attention) // self.layout.tp + self._mlp.in_block

    @cached_property
    def _embedding(self) -> int:
        """Of each matrix of tokens that is on this rank, gathered."""
        return 4 * self.step.vocab * self.step.width // self.layout.tp * self._ends

    @property
    def _ends(self) -> int:
        """Matrices of tokens that this rank has."""
        both = self._is_first and self._is_last and not self.step.tied
        return 2 if both else int(self._is_first or self._is_last)

    @cached_property
    def _block(self) -> int:
        """Float32 bytes of the weights of one block, gathered."""
        return 4 * (self._block_matrices + 2 * self.step.width)

    @cached_property
    def _weights(self) -> int:
        norm = 4 * self.step.width * self._is_last
        whole = self._layers * self._block + self._embedding + norm
        return whole // self.layout.weight_parts + self._layers * self._mlp.kept

    @property
    def _optimizer(self) -> int:
        if self.step.optimizer == "muon":
            return self._weights + self._embedding // self.layout.weight_parts
        return _STATES[self.step.optimizer] * self._weights

    @property
    def _bucket(self) -> int:
        """Gradients of DistributedDataParallel, which has a copy of its own."""
        return self._weights if self.layout.num_ranks > 1 and not self.layout.shares_model else 0

    @cached_property
    def _earlier(self) -> int:
        """Gradients that are there before the last part of the batch is computed."""
        if self.layout.pp > 1:  # FSDP2 cuts them after the last part
            whole = (self._weights - self._layers * self._mlp.kept) * self.layout.weight_parts
            return whole + self._layers * 4 * self._mlp.apart
        several = self._samples < self.step.batch // self.layout.data_parallel
        return self._bucket + self._weights * several

    @property
    def _block_gradients(self) -> int:
        """Gradients of this part of the batch, without those of matrices of tokens."""
        alone = self._earlier == self._bucket
        return (self._weights - self._embedding // self.layout.weight_parts) * alone

    @property
    def _head_gradient(self) -> int:
        """Waits for that of the embedding, if both are one matrix of this rank."""
        return self._gradient_width * self._embedding // 4 * (self.layout.pp == 1)

    @property
    def _embedding_gradients(self) -> int:
        """At the end of the backward pass: of output, embedding and their sum, before it is cut."""
        whole = self._embedding // self._ends * self.layout.tp if self._ends else 0
        several = 3 if self.step.tied and self.layout.pp == 1 else 1
        size = several * self._embedding + whole * (self.layout.tp > 1)
        return size * self._gradient_width // 4

    @property
    def _gradient_width(self) -> int:
        """Bytes of a gradient before it is cut."""
        return self._width if self._gathers else 4

    @cached_property
    def _samples(self) -> int:
        """Sequences that the rank computes at once."""
        samples = self.step.batch // self.layout.data_parallel
        if self.layout.pp > 1:
            return samples // self.layout.num_microbatches
        return min(samples, self.step.micro or samples)

    @cached_property
    def _tokens(self) -> int:
        """Tokens that the rank computes at once."""
        return self._samples * self.step.length // self.layout.cp

    @property
    def _sequence_parts(self) -> int:
        """Ranks that share the activations of norms and residuals."""
        return self.layout.tp if self.layout.cuts_sequences else 1

    @cached_property
    def _gathers(self) -> bool:
        """Whether FSDP2 has the weights, also where it only averages gradients of copies."""
        return self.layout.shares_model and self.layout.weight_parts * self.layout.dp_replicate > 1

    @property
    def _width(self) -> int:
        """Bytes of a computed number."""
        return 2 if self.step.half else 4

    @property
    def _kept(self) -> int:
        """Activations of all layers that wait for the backward pass, for one part of the batch."""
        step = self.step
        if step.recomputes:
            stream = 2 if step.half and self._gathers else 4
            return self._layers * stream * step.width * self._tokens // self._sequence_parts
        return self._layers * self._activations

    @cached_property
    def _activations(self) -> int:
        """Activations of one layer."""
        step, tp, cp = self.step, self.layout.tp, self.layout.cp
        if not step.half:
            of_width = 24 + 16 / tp + 8 * (cp - 1)
        else:
            of_width = (16 if self._gathers else 26) + 8 / tp + 4 * (cp - 1)
        of_norms = 12 if step.half and self._gathers else 16
        cut = 1 - 1 / self._sequence_parts
        of_width -= of_norms * cut
        each = of_width * step.width + 4 / tp * step.heads
        each += 8 / self._sequence_parts
        masks = self._samples if step.documents else int(cp > 1)
        mask = masks * step.length**2 // cp * self._width
        cast = 0 if self._gathers or not step.half else 2 * self._block_matrices
        return int(self._tokens * each) + mask + cast + self._mlp.activations(self._tokens)

    @property
    def _loss(self) -> int:
        """Between the last layer and the gradient of its output."""
        step, tokens = self.step, self._tokens
        if not self._is_last:
            return 4 * step.width * tokens
        if step.on_gpu and self.layout.cuts_weights_only:
            return self._fused_loss
        cast = self._embedding // 2 if step.half and not self._gathers else 0
        of_width = 12 if not step.half else (8 if self._gathers else 10)
        logits = 12 * step.vocab * tokens
        return of_width * step.width * tokens + logits + 12 * tokens + cast

    @property
    def _fused_loss(self) -> int:
        """As `_loss`, without all logits at once."""
        step, tokens = self.step, self._tokens
        logits = min(12 * step.vocab * tokens, 3 * _LOGITS_BYTES)
        matrix = 4 * step.vocab * step.width
        return (8 + self._width) * step.width * tokens + logits + 2 * matrix

    @property
    def _root(self) -> int:
        """Gathered weights of embedding and output."""
        return self._embedding * self._width // 4 if self._gathers else 0

    @property
    def _backward(self) -> int:
        """Beside what is kept, in the backward pass of a block."""
        step = self.step
        again = self._activations if step.recomputes else 0
        gathered = 3 * self._gathered_block * self._width // 4
        gradients = 2 * self._width * step.width * self._tokens
        return again + gathered + gradients + self._mlp.gradients(self._tokens)

    @cached_property
    def _gathered_block(self) -> int:
        """Weights or gradients of one block before they are cut, float32; 0 if they never are."""
        return self._block * self._gathers + 4 * self._mlp.gathered

    @property
    def _passed(self) -> int:
        """Buffers for activations of stages before and gradients of those after, per microbatch."""
        neighbours = 2 - self._is_first - self._is_last
        each = 4 * self.step.width * self._tokens
        return each * self.layout.num_microbatches * neighbours
