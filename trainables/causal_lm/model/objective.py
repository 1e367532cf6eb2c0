"""The next-token loss of a model: in `transformers`' own way, or the faster one of `fast_path`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from search_spaces.errors import UserError
from trainables.causal_lm.config import CausalLMConfig
from trainables.causal_lm.experts import balance_gradient, router_logits
from trainables.causal_lm.layouts.rules import CUT_BETWEEN_LAYERS
from trainables.causal_lm.model.compilation import TrainedLoss
from trainables.causal_lm.model.fast_path import (
    hidden_states,
    is_fast,
    output_weight,
    speed_up,
)
from trainables.causal_lm.model.packing import (
    check_documents,
    compute_documents,
    document_positions,
    packing_of,
)
from trainables.parallel.context import (
    attention_name,
    mean_cross_entropy,
    model_arguments,
    sequence_part,
    split_sequences,
    use_attention,
)
from trainables.parallel.fake_rank import fake_tensors
from trainables.parallel.fsdp import blocks_of, shard, split_experts
from trainables.parallel.mesh import ALONE, Mesh
from trainables.parallel.meter import counted_flops, num_weights
from trainables.parallel.pipeline import Pipeline
from trainables.parallel.tensor import cut_sequences
from trainables.training.cross_entropy import IGNORED, linear_cross_entropies, linear_cross_entropy
from trainables.training.data_sampler import to_device as to_device
from trainables.training.precision import autocast, compute_dtype


class NextTokenLoss(TrainedLoss[CausalLMConfig]):
    """Mean loss of a batch: what is compiled, and what data parallelism wraps."""

    @property
    def in_blocks(self) -> bool:
        """Where the rest is little: the faster loss is compiled by itself."""
        return self._is_fast

    @property
    def _is_fast(self) -> bool:
        # gradients of an unscaled loss, as of our cross-entropy, vanish in float16
        return is_fast(self.model) and self.settings.dtype != "float16"

    def forward(
        self,
        tokens: torch.Tensor,
        counted: torch.Tensor | None = None,
        positions: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Nats per counted token, a scalar.

        Args:
            tokens: int64 [batch, length + 1].
            counted: bool [batch, length], whether the next token counts; None: all do.
            positions: int64 [batch, length], of each token in its document, from 0. A document does
                not attend to others. None: each sequence is one document.
        """
        inputs, targets = tokens[:, :-1], _targets(tokens, counted)
        if self._is_fast:
            hidden = hidden_states(self.model, inputs, self.settings, positions)
            cross_entropy = getattr(self.model, "cross_entropy", linear_cross_entropy)
            loss: torch.Tensor = cross_entropy(
                hidden, output_weight(self.model), targets.reshape(-1)
            )
            return loss
        logits, balance = training_logits(self.model, inputs, self.settings, positions)
        return mean_cross_entropy(sequence_part(self.model), logits, targets) + balance


def next_token_loss(
    model: nn.Module,
    config: CausalLMConfig,
    reduction: str,
    tokens: torch.Tensor,
    counted: torch.Tensor | None = None,
    positions: torch.Tensor | None = None,
) -> torch.Tensor:
    """Negative log-likelihood of each next token, as of `NextTokenLoss`; 0 if it does not count.

    On the fast path it is not differentiable; `NextTokenLoss` is.
    """
    inputs, targets = tokens[:, :-1], _targets(tokens, counted)
    if isinstance(model, Pipeline):
        scores = model(inputs, **({} if positions is None else {"positions": positions}))
        if scores is None:  # another rank has the last stage
            return torch.zeros(targets.numel() if reduction == "none" else (), device=tokens.device)
        return F.cross_entropy(scores.flatten(0, 1), targets.reshape(-1), reduction=reduction)
    reduce: Callable[[torch.Tensor], torch.Tensor] = _REDUCE[reduction]
    if is_fast(model) and not torch.is_grad_enabled():
        hidden = hidden_states(model, inputs, config, positions)
        return reduce(linear_cross_entropies(hidden, output_weight(model), targets.reshape(-1)))
    logits = next_token_logits(model, inputs, config, positions)
    part = sequence_part(model)
    if part.size == 1:
        return F.cross_entropy(logits, targets.reshape(-1), reduction=reduction)
    mine = part.cut(targets, IGNORED)
    losses = F.cross_entropy(logits, mine.reshape(-1), reduction="none").view_as(mine)
    return reduce(part.gather(losses, dim=1)[:, : targets.shape[1]].reshape(-1))


def stage_inputs(
    tokens: torch.Tensor,
    counted: torch.Tensor | None = None,
    positions: torch.Tensor | None = None,
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """The inputs of `Pipeline.backward`, from those of `NextTokenLoss`."""
    inputs = tokens[:, :-1]
    others = {"targets": _targets(tokens, counted)}
    return inputs, others if positions is None else {**others, "positions": positions}


Inputs = tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]
"""Of `NextTokenLoss`."""


def text_inputs(tokens: torch.Tensor, end: int | None) -> Inputs:
    """The inputs of texts; with `end`, their documents do not see each other."""
    return tokens, None, None if end is None else document_positions(tokens, end)


def _targets(tokens: torch.Tensor, counted: torch.Tensor | None) -> torch.Tensor:
    """The next tokens, int64 [batch, length]; those that do not count are `IGNORED`."""
    targets = tokens[:, 1:]
    if counted is not None:
        targets = targets.masked_fill(~counted, IGNORED)
    return targets


_REDUCE: dict[str, Any] = {"none": lambda each: each, "sum": torch.sum, "mean": torch.mean}


def move_model(model: nn.Module, device: torch.device) -> nn.Module:
    """Move a model to a device. On a GPU, its attention needs no mask if it is plainly causal."""
    model.to(device)
    if device.type == "cuda":
        speed_up(model)
    return model


def shard_or_move(
    model: nn.Module, config: CausalLMConfig, mesh: Mesh, device: torch.device
) -> None:
    """Move a model to a device, or, where ranks share it, this rank's part."""
    hf: Any = model
    hf.shares_batch = math.prod(mesh.layout.sizes.values()) > 1
    if not mesh.is_sharded:
        move_model(model, device)
        return
    check_documents(model, mesh)
    split_sequences(model, mesh)
    dtype, plan = compute_dtype(config.dtype, device), plan_of_layers(model, mesh)
    ring = mesh.layout.cp_method == "ring"
    if ring and device.type == "cuda" and dtype == torch.float32:
        raise UserError("layout cp_method: ring takes dtype bfloat16 on a GPU; use gather")
    split_experts(model, mesh, dtype)
    shard(model, blocks_of(model), mesh, dtype, plan)
    if device.type == "cuda" and mesh.layout.cuts_weights_only:
        speed_up(model)


def plan_of_layers(model: nn.Module, mesh: Mesh) -> dict[str, str]:
    """How the ranks of `tp` share the layers of a model, as its class in `transformers` says.

    Raises:
        UserError: they cannot share its heads, or cut sequences between its layers.
    """
    hf: Any = model
    for name in ("num_attention_heads", "num_key_value_heads"):
        heads = getattr(hf.config, name, None) or mesh.layout.tp
        if heads % mesh.layout.tp:
            raise UserError(f"layout tp {mesh.layout.tp} does not divide {name}, {heads}")
    plan = {name: kind for name, kind in (hf.tp_plan or {}).items() if ".experts" not in name}
    if not mesh.layout.cuts_sequences:
        return plan
    if hf.config.model_type not in CUT_BETWEEN_LAYERS:
        known = ", ".join(CUT_BETWEEN_LAYERS)
        raise UserError(
            f"sequence_parallel: models of type {hf.config.model_type}; it takes {known}"
        )
    return cut_sequences(plan)


def recompute_activations(model: nn.Module) -> None:
    """Keep only each block's input for the backward pass, and compute the block again."""
    hf: Any = model
    hf.activation_checkpointing_enable(activation_checkpointing_kwargs={"use_reentrant": False})


def step_flops(model: nn.Module, config: CausalLMConfig) -> float | None:
    """FLOPs of a training step per token; None for a model that does not run on fake tensors.

    Three times the products and attentions (as if not causal) of a forward pass, less what frozen
    weights that a token is multiplied by save."""
    hf: Any = model
    key = str(model), hf.config.to_json_string(), config.sequence_length
    if key not in _FORWARD:  # of trials alike, it is counted once
        _FORWARD.clear()
        _FORWARD[key] = _forward_flops(model, config.sequence_length)
    forward = _FORWARD[key]
    head, modules = getattr(hf.get_output_embeddings(), "weight", None), model.modules()
    tables = {id(m.weight) for m in modules if isinstance(m, nn.Embedding)} - {id(head)}
    frozen = [p for p in model.parameters() if not p.requires_grad and id(p) not in tables]
    active = getattr(hf.config.get_text_config(), "num_experts_per_tok", 0)  # for a token
    saved = sum(num_weights(p) * (active / len(p) if active and p.ndim == 3 else 1) for p in frozen)
    return None if forward is None else 3.0 * forward / config.sequence_length - 2.0 * saved


_FORWARD: dict[tuple[str, str, int], int | None] = {}


def _forward_flops(model: nn.Module, length: int) -> int | None:
    """Of a sequence."""
    try:
        with fake_tensors(ALONE), torch.no_grad(), counted_flops(model) as counter:
            ids = torch.zeros(1, length, dtype=torch.int64)
            model(input_ids=ids, use_cache=False)
    except Exception:  # noqa: BLE001 - what reads a number from a tensor fails in many ways
        return None
    return int(counter.get_total_flops())


@contextmanager
def masked_attention(model: nn.Module) -> Iterator[None]:
    """Give a model an attention that takes masks, of whole sequences, as generation needs it."""
    before = attention_name(model)
    if before:
        use_attention(model, "sdpa")
    try:
        yield
    finally:
        if before:
            use_attention(model, before)


def next_token_logits(
    model: nn.Module,
    inputs: torch.Tensor,
    config: CausalLMConfig,
    positions: torch.Tensor | None = None,
) -> torch.Tensor:
    """Scores of every token of the vocabulary, float32 [batch * length, vocabulary]; with `cp`, of
    this rank's part of the length.

    Args:
        model: of `transformers`.
        inputs: int64 [batch, length].
        config: gives the dtype of the computation.
        positions: as of `NextTokenLoss`.
    """

    def compute(**arguments: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = model(use_cache=False, **arguments).logits
        return found

    with autocast(config.dtype, inputs.device):
        if positions is None:
            logits = compute(**model_arguments(model, inputs, None))
        else:
            logits = compute_documents(model, compute, inputs, positions)
    return logits.float().reshape(-1, logits.shape[-1])


def training_logits(
    model: nn.Module,
    inputs: torch.Tensor,
    config: CausalLMConfig,
    positions: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor | float]:
    """As `next_token_logits`, and 0 to add to the loss.

    With experts, that 0 has the gradient of the loss that balances their use over the batch.
    """
    weight: float | torch.Tensor = config.experts.balance if config.experts is not None else 0.0
    if config.experts is None or (isinstance(weight, float) and weight == 0):
        return next_token_logits(model, inputs, config, positions), 0.0
    if positions is not None:
        packing_of(model, inputs.shape[1])  # its comparison is not of this batch
    with router_logits(model) as routed:
        logits = next_token_logits(model, inputs, config, positions)
    together = getattr(model, "shares_batch", False)
    return logits, balance_gradient(routed, config.experts, several_ranks=together)
