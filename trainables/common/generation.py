"""Generation of tokens by a language model of `transformers`, with a cache of keys and values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn


@dataclass(frozen=True)
class Sampling:
    """How the next token is chosen.

    Attributes:
        temperature: divides the logits; 0: the most likely token.
        top_p: the most likely tokens that have this probability together are sampled from
            (nucleus sampling, Holtzman et al. 2020); 1: all.
        seed: of the choice.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0


GREEDY = Sampling()


@torch.no_grad()
def generate(
    model: nn.Module,
    prompts: Sequence[Sequence[int]],
    ends: frozenset[int],
    most: int,
    sampling: Sampling = GREEDY,
    on_tokens: Callable[[list[int]], None] = lambda tokens: None,
) -> list[list[int]]:
    """Continue prompts together.

    Args:
        model: in evaluation mode, with an attention that takes masks.
        prompts: token ids of each, not empty.
        ends: tokens that end a text; they are not returned.
        most: largest number of tokens to add.
        sampling: how the next token is chosen.
        on_tokens: called with the next token of each prompt as soon as it is chosen.

    Returns:
        The added tokens of each prompt.
    """
    device = next(model.parameters()).device
    generator = torch.Generator(device).manual_seed(sampling.seed)

    def choose(logits: torch.Tensor) -> torch.Tensor:
        chosen = _choose(logits, sampling, generator)
        on_tokens(chosen.tolist())
        return chosen

    added = decode(model, prompts, ends, most, choose)
    return [_until(tokens, ends) for tokens in added.tolist()]


@torch.no_grad()
def decode(
    model: nn.Module,
    prompts: Sequence[Sequence[int]],
    ends: frozenset[int],
    most: int,
    choose: Callable[[torch.Tensor], torch.Tensor],
    samples: int = 1,
) -> torch.Tensor:
    """Continue prompts together until each has ended, as of `generate`.

    Args:
        choose: returns the next token of each text, int64 [texts], by the logits, float32
            [texts, vocabulary].
        samples: texts of each prompt, one behind the other; the prompt is computed once.

    Returns:
        int64 [prompts * samples, tokens]; what follows a text's first end has no meaning.
    """
    device = next(model.parameters()).device
    ids, mask = _left_padded(prompts, device)
    stops = torch.tensor(sorted(ends), device=device)
    added: list[torch.Tensor] = []
    done = torch.zeros(len(prompts) * samples, dtype=torch.bool, device=device)
    cache: Any = None
    for _ in range(most):
        positions = (mask.cumsum(dim=1) - 1).clamp(min=0)[:, -ids.shape[1] :]
        found: Any = model(
            input_ids=ids,
            attention_mask=mask,
            position_ids=positions,
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        )
        cache, logits = found.past_key_values, found.logits[:, -1].float()
        if samples > 1 and not added:
            cache.batch_repeat_interleave(samples)
            logits, mask = (t.repeat_interleave(samples, dim=0) for t in (logits, mask))
        ids = choose(logits)[:, None]
        mask = torch.cat([mask, torch.ones_like(mask[:, :1])], dim=1)
        added.append(ids)
        done |= torch.isin(ids[:, 0], stops)
        if done.all():
            break
    return torch.cat(added, dim=1)


def _left_padded(
    prompts: Sequence[Sequence[int]], device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    width = max(len(prompt) for prompt in prompts)
    ids = [[0] * (width - len(p)) + list(p) for p in prompts]
    mask = [[0] * (width - len(p)) + [1] * len(p) for p in prompts]
    return torch.tensor(ids, device=device), torch.tensor(mask, device=device)


def _choose(logits: torch.Tensor, how: Sampling, generator: torch.Generator) -> torch.Tensor:
    """Tokens, int64 [prompts], by logits [prompts, vocabulary]."""
    if how.temperature == 0:
        return logits.argmax(dim=-1)
    chances, order = (logits / how.temperature).softmax(dim=-1).sort(descending=True)
    before = chances.cumsum(dim=-1) - chances
    chances = chances.masked_fill((before >= how.top_p) & (before > 0), 0.0)  # keeps the first one
    drawn = torch.multinomial(chances, 1, generator=generator)
    return order.gather(-1, drawn)[:, 0]


def _until(tokens: list[int], ends: frozenset[int]) -> list[int]:
    stop = next((i for i, token in enumerate(tokens) if token in ends), len(tokens))
    return tokens[:stop]
