"""Completions sampled by the model that is trained.

They are a function of the weights and of noise, which is a function of (seed, step, question,
sample) alone. So a resumed trial samples the same ones, and another number of workers does so up to
rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from trainables.training.generation import decode

Noise = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Completions:
    """Completions of prompts, in their order.

    Attributes:
        ids: int64 [completions, tokens].
        lengths: tokens of each, with the one that ends it, int64 [completions].
        ended: whether there is one, bool [completions].
        log_probs: of the tokens at the temperature of the sampling, float32 [completions, tokens].
        entropies: of the distributions they are from, nats, of the same shape.
    """

    ids: torch.Tensor
    lengths: torch.Tensor
    ended: torch.Tensor
    log_probs: torch.Tensor
    entropies: torch.Tensor

    @property
    def counted(self) -> torch.Tensor:
        """Which tokens belong to a completion, bool [completions, tokens]."""
        return torch.arange(self.ids.shape[1], device=self.ids.device) < self.lengths[:, None]

    def texts(self) -> list[list[int]]:
        """Token ids of each without the one that ends it."""
        sizes = (self.lengths - self.ended.long()).tolist()
        return [row[:size] for row, size in zip(self.ids.tolist(), sizes, strict=True)]


def noise(seed: int, step: int, questions: Sequence[int], samples: int, tokens: int) -> Noise:
    """Numbers in [0, 1), [questions * samples, tokens]; each row depends on its place alone.

    Args:
        seed, step: of the trial.
        questions: places of the questions in the batch of all ranks.
        samples: of each question.
        tokens: of each sample, at most.
    """
    places = [(seed, step, question, sample) for question in questions for sample in range(samples)]
    rows = [np.random.default_rng(place).random(tokens, dtype=np.float32) for place in places]
    return np.stack(rows)


def sample(
    model: nn.Module,
    prompts: Sequence[Sequence[int]],
    ends: frozenset[int],
    temperature: float,
    numbers: Noise,
    greedy: npt.NDArray[np.bool_] | None = None,
) -> Completions:
    """Complete prompts together.

    Args:
        model: in evaluation mode, with an attention that takes masks.
        prompts: token ids of each.
        ends: tokens that end a completion.
        temperature: divides the logits.
        numbers: of `noise`, [prompts * samples, tokens]: each picks a token by the inverse of the
            distribution function.
        greedy: the completions of the most likely tokens, [prompts * samples]; None: there is none.
    """
    device = next(model.parameters()).device
    uniform = torch.from_numpy(numbers.T.copy()).to(device)
    fixed = None if greedy is None else torch.from_numpy(greedy).to(device)
    log_probs: list[torch.Tensor] = []
    entropies: list[torch.Tensor] = []

    def choose(logits: torch.Tensor) -> torch.Tensor:
        every = (logits / temperature).log_softmax(dim=-1)
        chances = every.exp()
        below = uniform[len(log_probs), :, None]
        ids = torch.searchsorted(chances.cumsum(dim=-1), below, right=True)[:, 0]
        ids = ids.clamp(max=logits.shape[-1] - 1)  # the last sum may be below 1
        if fixed is not None:
            ids = torch.where(fixed, logits.argmax(dim=-1), ids)
        log_probs.append(every.gather(-1, ids[:, None])[:, 0])
        entropies.append(-(chances * every).sum(dim=-1))
        return ids

    samples = len(numbers) // len(prompts)
    ids = decode(model, prompts, ends, numbers.shape[1], choose, samples)
    is_end = torch.isin(ids, torch.tensor(sorted(ends), device=device))
    ended = is_end.any(dim=1)
    lengths = torch.where(ended, is_end.int().argmax(dim=1) + 1, ids.shape[1])
    parts = (torch.stack(part[: ids.shape[1]], dim=1) for part in (log_probs, entropies))
    return Completions(ids, lengths, ended, *parts)
