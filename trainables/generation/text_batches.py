"""Texts that a model reads together while they grow: with a cache, if it has one that is right."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any

import torch
from torch import nn

from trainables.generation.decode_step import DecodeStep, step_of

SMALLEST = {"cuda": 32, "cpu": 8}
"""Texts that go on alone, at least: fewer are no faster on a GPU, and a CPU computes a single one
by kernels that round by where its memory lies."""


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
        self.reading, self._model = reading, model
        self.ids, self._mask = _left_padded(prompts, next(model.parameters()).device)
        self.texts = torch.tensor(texts, device=self.ids.device)
        self._slots = self._mask.shape[1] + most
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

    def compact(self, done: torch.Tensor) -> int:
        """Go on with half of the texts, a quarter, … alone, where all others have ended.

        So there are few shapes, for each of which a GPU needs a graph of its own. Nothing is done
        for texts that are read by length.

        Args:
            done: which texts of all batches have ended, bool.

        Returns:
            How many of this batch have not.
        """
        ended = done[self.texts]
        going = len(ended) - int(ended.sum())
        size, smallest = len(ended), SMALLEST.get(done.device.type, 8)
        while size >= 2 * max(going, smallest):
            size //= 2
        if going and size < len(ended) and self.reading in (Reading.STEPS, Reading.PADDED):
            self._select(ended.int().argsort(stable=True)[:size].sort().values)
        return going

    def _select(self, rows: torch.Tensor) -> None:
        """Go on with some rows alone, int64 [kept]."""
        if self._step is None:
            for cache in self._cache.values():
                cache.reorder_cache(rows)
            self._mask = self._mask[rows]
        elif not self._begin_steps(*self._step.select(rows), len(rows)):
            return
        self.ids, self.texts = self.ids[rows], self.texts[rows]

    def _begin_steps(self, cache: Any, mask: torch.Tensor, texts: int) -> bool:
        """Read what follows in steps of fixed shape; returns whether that can be done."""
        step = step_of(self._model, cache, texts, self._slots)
        if step is None:
            return False
        step.begin(cache, mask)
        self._step = step
        return True

    def _for_each_text(self, logits: torch.Tensor) -> torch.Tensor:
        samples = len(self.texts) // len(logits)
        if self.reading is Reading.STEPS:
            (cache,) = self._cache.values()
            if self._begin_steps(cache, self._mask, len(self.texts)):
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
