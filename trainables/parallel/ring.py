"""Ring attention (Liu et al. 2023): keys and values travel from rank to rank beside the products.

A rank has the keys of two parts of a sequence at a time. It computes its queries' attention to each
part with torch's flash kernel, without a mask. The logarithms of the sums of the exponentials join
the results, and let the kernel compute the gradients of each part alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist

Tensors = list[torch.Tensor]


def ring_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    group: dist.ProcessGroup | None,
    scale: float | None = None,
) -> torch.Tensor:
    """Causal attention of this rank's part of sequences to all parts up to it; differentiable.

    Args:
        query: of the part, [batch, heads, tokens, width]; on a GPU of a half-precision dtype.
        key, value: of the part, [batch, some or all heads, tokens, width].
        group: ranks of the parts, which are equal, in order.
        scale: of the scores; None: width^-1/2.
    """
    found: torch.Tensor = _Ring.apply(query, key, value, group, scale)  # type: ignore[no-untyped-call]
    return found


class _Ring(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        group: dist.ProcessGroup | None,
        scale: float | None,
    ) -> torch.Tensor:
        ctx.group, ctx.scale = group, scale
        for hop, (keys, values) in ring_exchange([key.contiguous(), value.contiguous()], group):
            if hop > dist.get_rank(group):  # a later part: no query sees it
                continue
            part, more, *others = _attend(query, keys, values, scale, is_causal=hop == 0)
            if hop == 0:
                out, norm, ctx.others = part.float(), more, others
                continue
            joined = torch.logaddexp(norm, more)
            out = out * (norm - joined).exp()[..., None] + part * (more - joined).exp()[..., None]
            norm = joined
        whole: torch.Tensor = out.to(query.dtype)
        ctx.save_for_backward(query, key, value, whole, norm)
        return whole

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        query, key, value, out, norm = ctx.saved_tensors
        by_query = torch.zeros_like(query, dtype=torch.float32)
        moving = [torch.zeros_like(t, dtype=torch.float32).contiguous() for t in (key, value)]
        for hop, (keys, values) in ring_exchange([key.contiguous(), value.contiguous()], ctx.group):
            if hop <= dist.get_rank(ctx.group):
                saved = (query, keys, values, out, norm)
                found = _differentiate(
                    grads[0].contiguous(), *saved, ctx.others, ctx.scale, is_causal=hop == 0
                )
                by_query += found[0]
                for total, grad in zip(moving, found[1:], strict=True):
                    batch, heads, *rest = total.shape  # several queries may share keys
                    total += grad.reshape(batch, heads, -1, *rest).sum(2)
            moving, works = _pass_on(moving, ctx.group)  # they follow the keys, and come home
            _wait(works)
        of_keys = (grad.to(key.dtype) for grad in moving)
        return by_query.to(query.dtype), *of_keys, None, None


def ring_exchange(own: Tensors, group: dist.ProcessGroup | None) -> Iterator[tuple[int, Tensors]]:
    """The tensors of this rank, of the one before, and so on; the next ones travel meanwhile."""
    size, here = dist.get_world_size(group), own
    for hop in range(size):
        coming, works = _pass_on(here, group) if hop < size - 1 else (here, [])
        yield hop, here
        _wait(works)
        here = coming


def _pass_on(tensors: Tensors, group: dist.ProcessGroup | None) -> tuple[Tensors, list[dist.Work]]:
    """Send tensors to the next rank; returns those of the one before, which come with the works."""
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    if size == 1:
        return tensors, []
    coming = [torch.empty_like(tensor) for tensor in tensors]
    to, source = (rank + 1) % size, (rank - 1) % size
    sends = [dist.P2POp(dist.isend, t, group=group, group_peer=to) for t in tensors]
    receives = [dist.P2POp(dist.irecv, t, group=group, group_peer=source) for t in coming]
    return coming, dist.batch_isend_irecv([*sends, *receives])


def _wait(works: list[dist.Work]) -> None:
    for work in works:
        work.wait()


def _attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    scale: float | None,
    *,
    is_causal: bool,
) -> tuple[Any, ...]:
    """Attention to one part, the logarithm of the scores' sum [batch, heads, tokens], and what
    the kernel of a GPU needs in the backward pass."""
    aten: Any = torch.ops.aten
    given = (query, *_per_query(query, key, value), 0.0, is_causal)
    if query.device.type == "cpu":
        return tuple(aten._scaled_dot_product_flash_attention_for_cpu(*given, scale=scale))
    found = aten._scaled_dot_product_flash_attention(*given, scale=scale)
    return tuple(found[:8])


def _differentiate(
    grad: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    out: torch.Tensor,
    norm: torch.Tensor,
    others: list[Any],
    scale: float | None,
    *,
    is_causal: bool,
) -> tuple[torch.Tensor, ...]:
    """Gradients of the query, and of the keys and values that each head of it sees.

    `out` and `norm` are of all parts: the shares of this part's keys follow from them.
    """
    aten: Any = torch.ops.aten
    given = (grad, query, *_per_query(query, key, value), out, norm)
    if query.device.type == "cpu":
        kernel = aten._scaled_dot_product_flash_attention_for_cpu_backward
        return tuple(kernel(*given, 0.0, is_causal, scale=scale))
    sizes, random = others[:4], others[4:]
    kernel = aten._scaled_dot_product_flash_attention_backward
    return tuple(kernel(*given, *sizes, 0.0, is_causal, *random, scale=scale))


def _per_query(query: torch.Tensor, *shared: torch.Tensor) -> Tensors:
    """Keys and values for each head of the query."""
    return [t.repeat_interleave(query.shape[1] // t.shape[1], dim=1) for t in shared]
