"""Generation of tokens by a language model of `transformers`, with a cache of keys and values."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from trainables.generation.text_batches import Reading, TextBatch, text_batches

log = logging.getLogger(__name__)

BETWEEN_LOOKS = 16
"""Tokens of each text after which a GPU is asked whether all have ended, which is waited for."""


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
    on_tokens: Callable[[list[int]], None] | None = None,
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
        if on_tokens is not None:
            on_tokens(chosen.tolist())
        return chosen

    looks = None if on_tokens is None else 1
    added = decode(model, prompts, ends, most, choose, looks=looks)
    return [_until(tokens, ends) for tokens in added.tolist()]


@torch.no_grad()
def decode(
    model: nn.Module,
    prompts: Sequence[Sequence[int]],
    ends: frozenset[int],
    most: int,
    choose: Callable[[torch.Tensor], torch.Tensor],
    samples: int = 1,
    looks: int | None = None,
) -> torch.Tensor:
    """Continue prompts together until each has ended, as of `generate`.

    Args:
        choose: returns the next token of each text, int64 [texts], by the logits, float32
            [texts, vocabulary], which the next call overwrites; also for texts that have ended,
            whose logits have no meaning.
        samples: texts of each prompt, one behind the other; the prompt is computed once.
        looks: tokens of each text after which it is asked which have ended; None: 1, and
            `BETWEEN_LOOKS` on a GPU. Where half have, the others go on alone.

    Returns:
        int64 [prompts * samples, tokens]; what follows a text's first end has no meaning.
    """
    batches = text_batches(model, prompts, samples, _reading_of(model), most)
    return _continued(batches, ends, most, choose, looks)


def _continued(
    batches: list[TextBatch],
    ends: frozenset[int],
    most: int,
    choose: Callable[[torch.Tensor], torch.Tensor],
    looks: int | None = None,
) -> torch.Tensor:
    device, texts = batches[0].ids.device, sum(len(batch.texts) for batch in batches)
    stops = torch.tensor(sorted(ends), dtype=torch.int64, device=device)
    if looks is None:
        looks = BETWEEN_LOOKS if device.type == "cuda" else 1
    added: list[torch.Tensor] = []
    done = torch.zeros(texts, dtype=torch.bool, device=device)
    every: torch.Tensor | None = None
    for number in range(1, most + 1):
        scores = torch.cat([batch.scores() for batch in batches])
        every = torch.empty_like(scores) if every is None else every
        every[torch.cat([batch.texts for batch in batches])] = scores  # others keep their last
        ids = choose(every)
        added.append(ids)
        done |= torch.isin(ids, stops)
        if number == most:
            break
        for batch in batches:
            batch.append(ids[batch.texts])
        if ends and number % looks == 0 and not sum(batch.compact(done) for batch in batches):
            break
    found = torch.stack(added, dim=1)
    going = torch.isin(found, stops).cummax(dim=1).values.logical_not().any(dim=0)
    return found[:, : 1 + int(going.sum())]


def _reading_of(model: nn.Module) -> Reading:
    """The first form that gives the scores of each text alone, up to rounding."""
    hf: Any = model
    if not hasattr(model, "text_reading"):
        with torch.autocast(next(model.parameters()).device.type, enabled=False):
            tried = (form for form in (Reading.PADDED, Reading.CACHED) if _is_right(hf, form))
            found = next(tried, Reading.WHOLE)
            if found is Reading.PADDED and _is_right(hf, Reading.STEPS):
                found = Reading.STEPS  # some batches cannot be, and are padded
            hf.text_reading = found
        log.debug("%s reads texts that go on: %s", hf.config.model_type, hf.text_reading.value)
    reading: Reading = hf.text_reading
    return reading


_ROUNDINGS = {Reading.STEPS: 1, Reading.PADDED: 1, Reading.CACHED: 8}
"""Relative differences that are due to rounding, in square roots of a dtype's precision: recurrent
layers compute one token in another way than many."""


def _is_right(hf: Any, reading: Reading) -> bool:
    """Whether a model gives the scores of each text alone if it reads several in this form."""
    device, size = next(hf.parameters()).device, hf.config.get_text_config().vocab_size
    generator = torch.Generator().manual_seed(0)
    given = torch.randint(size, (3, 9), generator=generator).tolist()
    prompts = [given[0], given[1][:5], given[2][:5]]
    forced = torch.randint(size, (4, 2 * len(prompts)), generator=generator).to(device)
    seen: list[torch.Tensor] = []

    def choose(scores: torch.Tensor) -> torch.Tensor:
        seen.append(scores)
        return forced[len(seen) - 1]

    try:
        batches = text_batches(hf, prompts, 2, reading, len(forced))
        _continued(batches, frozenset(), len(forced), choose)
        if any(batch.reading is not reading for batch in batches):
            return False
    except Exception as e:  # noqa: BLE001 - each model has its own for what it does not take
        log.debug("%s: %s: %s", hf.config.model_type, reading.value, e)
        return False
    for text, scores in enumerate(seen[-1]):
        whole = [*prompts[text // 2], *forced[:-1, text].tolist()]
        found = hf(input_ids=torch.tensor([whole], device=device), use_cache=False).logits[0, -1]
        alone, rounding = found.float(), math.sqrt(torch.finfo(found.dtype).eps)
        if not float((scores - alone).norm() / alone.norm()) <= _ROUNDINGS[reading] * rounding:
            return False
    return True


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
