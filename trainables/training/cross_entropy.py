"""Cross-entropy of a linear layer's outputs, without all of the outputs in memory at once.

The logits of a language model are often its largest tensor: 64 sequences of 1,024 tokens take 13 GB
in float32 for a vocabulary of 50,304, and as much for their gradients. Here they exist for some
tokens at a time. The gradients are computed in the forward pass, so that no product is computed
twice (the method of Hsu et al. 2024, Liger Kernel).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

LOGITS_BYTES = 2**30
"""Float32 logits that exist at once."""
IGNORED = -100
"""Target of a token that does not count, as in torch."""


def linear_cross_entropy(
    hidden: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor
) -> torch.Tensor:
    """Mean negative log-likelihood of the tokens that count, float32 scalar; differentiable.

    Args:
        hidden: [tokens, width], in the dtype of the products.
        weight: [classes, width].
        targets: int64 [tokens]; `IGNORED` for those that do not count.
    """
    loss: torch.Tensor = _LinearCrossEntropy.apply(hidden, weight, targets)  # type: ignore[no-untyped-call]
    return loss


def linear_cross_entropies(
    hidden: torch.Tensor,
    weight: torch.Tensor,
    targets: torch.Tensor,
    temperature: torch.Tensor | float = 1.0,
) -> torch.Tensor:
    """Negative log-likelihood of each token that counts, else 0, float32 [tokens]; differentiable.

    Its gradient depends on what is made of it, so that the backward pass computes logits again.

    Args:
        hidden, weight, targets: as of `linear_cross_entropy`.
        temperature: divides the logits.
    """
    each: torch.Tensor = _LinearCrossEntropies.apply(  # type: ignore[no-untyped-call]
        hidden, weight, targets, torch.ones((), device=hidden.device) * temperature
    )
    return each


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor
    ) -> torch.Tensor:
        counts = (targets != IGNORED).float()
        shares = counts / counts.sum()
        given, of_weight = (hidden, weight, targets, None), ctx.needs_input_grad[1]
        each, *grads = _computed(given, shares, of_weight)
        ctx.save_for_backward(*grads)
        return (each * shares).sum()

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        by_hidden, by_weight = ctx.saved_tensors
        of_weight = by_weight * grads[0] if ctx.needs_input_grad[1] else None
        return by_hidden * grads[0].to(by_hidden.dtype), of_weight, None


class _LinearCrossEntropies(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *given: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(*given)
        return _computed(given)[0]

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        given, of_weight = ctx.saved_tensors, ctx.needs_input_grad[1]
        _, by_hidden, by_weight = _computed(given, grads[0] / given[3], of_weight)
        return by_hidden, by_weight if of_weight else None, None, None


def _computed(
    given: Sequence[Any], shares: torch.Tensor | None = None, of_weight: bool = False
) -> tuple[torch.Tensor, ...]:
    """Losses of tokens; with their shares in a sum, also its gradients by `hidden` and `weight`.

    The shares are divided by the temperature. Without `of_weight` the last one has no meaning.
    """
    hidden, weight, targets, temperature = given
    matrix, counts = weight.to(hidden.dtype), targets != IGNORED
    classes = torch.arange(len(weight), device=weight.device)
    losses, by_hidden = [], []
    shape = weight.shape if of_weight else ()
    by_weight = torch.zeros(shape, dtype=torch.float32, device=weight.device)
    for part in _parts(len(targets), len(weight)):
        logits, target = (hidden[part] @ matrix.T).float(), targets[part, None].clamp(min=0)
        if temperature is not None:
            logits = logits / temperature
        scale = logits.logsumexp(dim=1, keepdim=True)
        losses.append((scale - logits.gather(1, target))[:, 0] * counts[part])
        if shares is None:
            continue
        share = (shares * counts)[part, None]
        by_logits = ((logits - scale).exp() - (classes == target).float()) * share
        by_logits = by_logits.to(hidden.dtype)
        by_hidden.append(by_logits @ matrix)
        if of_weight:
            by_weight = by_weight + by_logits.T @ hidden[part]
    if shares is None:
        return (torch.cat(losses),)
    return torch.cat(losses), torch.cat(by_hidden), by_weight.to(weight.dtype)


def _parts(tokens: int, classes: int) -> list[slice]:
    """Slices of equal size, of at most `LOGITS_BYTES` of logits."""
    count = -(-tokens * classes * 4 // LOGITS_BYTES)
    size = -(-tokens // count)
    return [slice(start, min(start + size, tokens)) for start in range(0, tokens, size)]
