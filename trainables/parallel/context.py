"""Context parallelism: each rank has a part of every sequence, and the keys and values of all."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

from search_spaces.errors import UserError
from trainables.parallel.mesh import Mesh
from trainables.parallel.ring import ring_attention

CONTEXT = "context_sdpa"
"""The attention's name in `transformers`."""


@dataclass(frozen=True)
class SequencePart:
    """The part of each sequence that this rank computes: one of equal parts, in order.

    Attributes:
        rank: number of the part.
        size: number of parts.
        group: ranks of the parts.
        ring: whether keys travel around the ranks, where no mask is needed; else they are gathered.
    """

    rank: int = 0
    size: int = 1
    group: dist.ProcessGroup | None = None
    ring: bool = False

    def cut(self, values: torch.Tensor, padding: int = 0) -> torch.Tensor:
        """This rank's part of [batch, length, …], at whose end there may be padding."""
        if self.size == 1:
            return values
        return self.pad(values, padding).chunk(self.size, dim=1)[self.rank]

    def pad(self, values: torch.Tensor, padding: int = 0) -> torch.Tensor:
        """[batch, length] with padding, so that all parts have the same length."""
        return F.pad(values, (0, -values.shape[1] % self.size), value=padding)

    def gather(self, values: torch.Tensor, dim: int) -> torch.Tensor:
        """The values of all parts, joined along a dimension; differentiable."""
        if self.size == 1:
            return values
        joined: torch.Tensor = _Gather.apply(values, dim, self)  # type: ignore[no-untyped-call]
        return joined

    def mean(self, value: torch.Tensor) -> torch.Tensor:
        """Mean of a value over the parts, on all of them; not differentiable."""
        if self.size == 1:
            return value
        total = value.detach().clone()
        dist.all_reduce(total, group=self.group)
        return total / self.size


WHOLE = SequencePart()


def split_sequences(model: nn.Module, mesh: Mesh) -> None:
    """Let a model of `transformers` compute this rank's part of sequences, if there are several.

    Raises:
        UserError: some layers do not attend to all tokens before.
    """
    if mesh.layout.cp == 1:
        return
    from transformers import AttentionInterface

    hf: Any = model
    kinds = set(getattr(hf.config, "layer_types", None) or ["full_attention"])
    if kinds != {"full_attention"} or getattr(hf.config, "sliding_window", None):
        kind = hf.config.model_type
        raise UserError(f"layout cp: {kind} has layers that attend to a window; use dp_shard")
    ring = mesh.layout.cp_method == "ring"
    part = SequencePart(mesh.coordinates["cp"], mesh.layout.cp, mesh.group("cp"), ring)
    AttentionInterface.register(CONTEXT, partial(_attend, part))
    use_attention(model, CONTEXT)
    hf.sequence_part = part


def use_attention(model: nn.Module, name: str) -> None:
    """Give a model of `transformers` another attention; `attention_name` returns it."""
    hf: Any = model
    hf.set_attn_implementation(name)
    hf.attention_name = name


def attention_name(model: nn.Module) -> str:
    """The attention that a model was given by `use_attention`; empty: it has its own."""
    return getattr(model, "attention_name", "")


def sequence_part(model: nn.Module) -> SequencePart:
    """The part of sequences that a model computes on this rank."""
    return getattr(model, "sequence_part", WHOLE)


def model_arguments(
    model: nn.Module, inputs: torch.Tensor, positions: torch.Tensor | None
) -> dict[str, torch.Tensor]:
    """Arguments of a `transformers` model: this rank's part of the inputs, [batch, length].

    With positions, documents do not attend to each other.
    """
    part = sequence_part(model)
    if positions is None and part.size > 1:
        positions = torch.arange(inputs.shape[1], device=inputs.device)[None]
        if part.ring:
            return {"input_ids": part.cut(inputs), "position_ids": part.cut(positions)}
    return {"input_ids": part.cut(inputs), **document_mask(positions, part)}


def document_mask(
    positions: torch.Tensor | None, part: SequencePart = WHOLE
) -> dict[str, torch.Tensor]:
    """Arguments of a `transformers` model with which documents do not attend to each other.

    Where a document's positions fall back, but not to 0, another end of it begins: it attends to
    the tokens with lower positions than its first, and not to the other ends.

    Args:
        positions: of each token in its document, int64 [batch, length]; None: no arguments.
        part: of the sequences whose queries this rank has.
    """
    if positions is None:
        return {}
    whole = part.pad(positions)
    document, places = (whole == 0).cumsum(dim=1), torch.arange(whole.shape[1], device=whole.device)
    follows = F.pad(whole.diff(dim=1) == 1, (1, 0))
    begin = places.masked_fill(follows, 0).cummax(dim=1).values
    lowest = part.cut(whole.gather(1, begin))[:, :, None]
    same = part.cut(begin)[:, :, None] == begin[:, None, :]
    above = part.cut(document)[:, :, None] == document[:, None, :]
    above &= whole[:, None, :] < lowest
    before = (same | above).tril(part.rank * same.shape[1])
    return {"position_ids": part.cut(positions), "attention_mask": before[:, None]}


def mean_cross_entropy(
    part: SequencePart, logits: torch.Tensor, targets: torch.Tensor, ignored: int = -100
) -> torch.Tensor:
    """Mean over the targets of whole sequences that count, a scalar, the same on all parts.

    Each part's gradient is that of its summand, times their number: the ranks average gradients.

    Args:
        part: of this rank.
        logits: of the part, float32 [batch * length of the part, classes].
        targets: of whole sequences, int64 [batch, length].
        ignored: target that does not count.
    """
    if part.size == 1:
        return F.cross_entropy(logits, targets.reshape(-1), ignore_index=ignored)
    mine = part.cut(targets, ignored).reshape(-1)
    total = F.cross_entropy(logits, mine, ignore_index=ignored, reduction="sum")
    loss = total * (part.size / (targets != ignored).sum())
    return loss + (part.mean(loss) - loss).detach()


def _attend(
    part: SequencePart,
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **others: Any,
) -> tuple[torch.Tensor, None]:
    """Attention of this rank's queries [batch, heads, tokens, width] to the keys of all ranks.

    The ranks gather them: what they send grows with the length of a sequence, not with its square.
    Without a mask, they travel around the ranks.
    """
    if attention_mask is None:
        found = ring_attention(query, key, value, part.group, scaling)
        return found.transpose(1, 2).contiguous(), None
    key, value = part.gather(torch.stack([key, value]), dim=3).unbind()
    return attention(query, key, value, attention_mask, dropout, scaling), None


def attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
) -> torch.Tensor:
    """Attention of [batch, heads, tokens, width] by a mask; None: to all tokens before.

    Returns:
        [batch, tokens, heads, width], as models of `transformers` take it.
    """
    shared = query.shape[1] // key.shape[1]
    if shared > 1 and mask is not None and query.is_cuda:
        # CUDA's kernels take a mask or shared heads; both at once materialize all scores
        key, value = (each.repeat_interleave(shared, dim=1) for each in (key, value))
    out = F.scaled_dot_product_attention(
        query,
        key,
        value,
        attn_mask=mask,
        dropout_p=dropout,
        scale=scaling,
        is_causal=mask is None,
        enable_gqa=query.shape[1] != key.shape[1],
    )
    return out.transpose(1, 2).contiguous()


class _Gather(torch.autograd.Function):
    """Its backward pass adds what the ranks' gradients have for each part."""

    @staticmethod
    def forward(ctx: Any, values: torch.Tensor, dim: int, part: SequencePart) -> torch.Tensor:
        ctx.dim, ctx.part = dim, part
        joined = values.new_empty(part.size * values.shape[0], *values.shape[1:])
        dist.all_gather_into_tensor(joined, values.contiguous(), group=part.group)
        return torch.cat(joined.chunk(part.size), dim)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        parts = torch.cat(grads[0].chunk(ctx.part.size, ctx.dim))
        mine = parts.new_empty(len(parts) // ctx.part.size, *parts.shape[1:])
        dist.reduce_scatter_tensor(mine, parts, group=ctx.part.group)
        return mine, None, None
