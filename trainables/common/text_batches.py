"""Texts that a model reads together while they grow: with a cache, if it has one that is right."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any

import torch
from torch import nn

from trainables.common.decode_step import DecodeStep, step_of


class Reading(Enum):
    """How a model reads texts that go on, the cheapest first."""

    STEPS = "all together, in steps of fixed shape"
    PADDED = "all together, with a mask of what is before each"
    CACHED = "those of one length together, without a mask"
    WHOLE = "those of one length together, from their beginning in each step"


class TextBatch:
    """Texts that a model reads together, and what it keeps of them.

    `reading` is how they are read: `STEPS` becomes `PADDED` where it cannot be done.
    """

    def __init__(
        self,
        model: nn.Module,
        prompts: Sequence[Sequence[int]],
        texts: list[int],
        reading: Reading,
        most: int,
    ) -> None:
        """Begin with prompts.

        Args:
            model: as of `generate`.
            prompts: token ids of each.
            texts: numbers of the texts, as many of each prompt in turn.
            reading: how they are read.
            most: tokens that are added, at most.
        """
        self.texts, self.reading, self._model, self._most = texts, reading, model, most
        self.ids, self._mask = _left_padded(prompts, next(model.parameters()).device)
        self._cache: dict[str, Any] = {}
        self._step: DecodeStep | None = None

    def scores(self) -> torch.Tensor:
        """Logits of the next token of each text, float32 [texts, vocabulary]."""
        if self._step is not None:
            return self._step.scores(self._model, self.ids)
        whole = self.reading is Reading.WHOLE
        arguments = {"input_ids": self.ids, **self._cache}
        if self.reading in (Reading.STEPS, Reading.PADDED):
            positions = (self._mask.cumsum(dim=1) - 1).clamp(min=0)[:, -self.ids.shape[1] :]
            arguments |= {"attention_mask": self._mask, "position_ids": positions}
        found: Any = self._model(use_cache=not whole, logits_to_keep=1, **arguments)
        if not whole:
            name = next(name for name in _CACHES if name in found)
            self._cache = {name: found[name]}
        return self._for_each_text(found.logits[:, -1].float())

    def append(self, ids: torch.Tensor) -> None:
        """Go on with the next token of each text, int64 [texts]."""
        before = [self.ids] if self.reading is Reading.WHOLE else []
        self.ids = torch.cat([*before, ids[:, None]], dim=1)
        if self._step is None:
            self._mask = torch.cat([self._mask, torch.ones_like(self._mask[:, :1])], dim=1)

    def _for_each_text(self, logits: torch.Tensor) -> torch.Tensor:
        samples = len(self.texts) // len(logits)
        if self.reading is Reading.STEPS:
            (cache,) = self._cache.values()
            slots = self._mask.shape[1] + self._most
            self._step = step_of(self._model, cache, len(self.texts), slots)
            if self._step is not None:
                self._step.begin(cache, self._mask)
                self._cache = {}
                return logits.repeat_interleave(samples, dim=0)
            self.reading = Reading.PADDED
        if samples == 1:
            return logits
        index = torch.arange(len(logits), device=logits.device).repeat_interleave(samples)
        for cache in self._cache.values():
            cache.reorder_cache(index)
        self.ids, self._mask = self.ids[index], self._mask[index]
        return logits[index]


_CACHES = ("past_key_values", "cache_params")
"""Names of what models keep of tokens that they have read."""


def text_batches(
    model: nn.Module, prompts: Sequence[Sequence[int]], samples: int, reading: Reading, most: int
) -> list[TextBatch]:
    """The batches in which a model reads texts, some of each prompt; arguments as of `decode`."""
    together = reading in (Reading.STEPS, Reading.PADDED)
    lengths = [0 if together else len(prompt) for prompt in prompts]
    found = []
    for length in sorted(set(lengths)):
        mine = [i for i, each in enumerate(lengths) if each == length]
        texts = [i * samples + sample for i in mine for sample in range(samples)]
        found.append(TextBatch(model, [prompts[i] for i in mine], texts, reading, most))
    return found


def _left_padded(
    prompts: Sequence[Sequence[int]], device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    width = max(len(prompt) for prompt in prompts)
    ids = [[0] * (width - len(p)) + list(p) for p in prompts]
    mask = [[0] * (width - len(p)) + [1] * len(p) for p in prompts]
    return torch.tensor(ids, device=device), torch.tensor(mask, device=device)
