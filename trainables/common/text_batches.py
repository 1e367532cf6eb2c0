"""Texts that a model reads together while they grow: with a cache, if it has one that is right."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any

import torch
from torch import nn


class Reading(Enum):
    """How a model reads texts that go on, the cheapest first."""

    PADDED = "all together, with a mask of what is before each"
    CACHED = "those of one length together, without a mask"
    WHOLE = "those of one length together, from their beginning in each step"


class TextBatch:
    """Texts that a model reads together, and what it keeps of them."""

    def __init__(
        self,
        model: nn.Module,
        prompts: Sequence[Sequence[int]],
        texts: list[int],
        reading: Reading,
    ) -> None:
        """Begin with prompts.

        Args:
            model: as of `generate`.
            prompts: token ids of each.
            texts: numbers of the texts, as many of each prompt in turn.
            reading: how they are read.
        """
        self.texts, self._model, self._reading = texts, model, reading
        self.ids, self._mask = _left_padded(prompts, next(model.parameters()).device)
        self._cache: dict[str, Any] = {}

    def scores(self) -> torch.Tensor:
        """Logits of the next token of each text, float32 [texts, vocabulary]."""
        whole = self._reading is Reading.WHOLE
        arguments = {"input_ids": self.ids, **self._cache}
        if self._reading is Reading.PADDED:
            positions = (self._mask.cumsum(dim=1) - 1).clamp(min=0)[:, -self.ids.shape[1] :]
            arguments |= {"attention_mask": self._mask, "position_ids": positions}
        found: Any = self._model(use_cache=not whole, logits_to_keep=1, **arguments)
        if not whole:
            name = next(name for name in _CACHES if name in found)
            self._cache = {name: found[name]}
        return self._for_each_text(found.logits[:, -1].float())

    def append(self, ids: torch.Tensor) -> None:
        """Go on with the next token of each text, int64 [texts]."""
        before = [self.ids] if self._reading is Reading.WHOLE else []
        self.ids = torch.cat([*before, ids[:, None]], dim=1)
        self._mask = torch.cat([self._mask, torch.ones_like(self._mask[:, :1])], dim=1)

    def _for_each_text(self, logits: torch.Tensor) -> torch.Tensor:
        samples = len(self.texts) // len(logits)
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
    model: nn.Module, prompts: Sequence[Sequence[int]], samples: int, reading: Reading
) -> list[TextBatch]:
    """The batches in which a model reads texts, some of each prompt; arguments as of `decode`."""
    lengths = [0 if reading is Reading.PADDED else len(prompt) for prompt in prompts]
    found = []
    for length in sorted(set(lengths)):
        mine = [i for i, each in enumerate(lengths) if each == length]
        texts = [i * samples + sample for i in mine for sample in range(samples)]
        found.append(TextBatch(model, [prompts[i] for i in mine], texts, reading))
    return found


def _left_padded(
    prompts: Sequence[Sequence[int]], device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    width = max(len(prompt) for prompt in prompts)
    ids = [[0] * (width - len(p)) + list(p) for p in prompts]
    mask = [[0] * (width - len(p)) + [1] * len(p) for p in prompts]
    return torch.tensor(ids, device=device), torch.tensor(mask, device=device)
