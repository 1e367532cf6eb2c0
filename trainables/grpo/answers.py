"""What a model answers to questions, its rewards, and the metrics of held-out questions.

Sampled completions are a function of the weights and of noise, which is a function of (seed, step,
question, sample) alone. So a resumed trial samples the same ones, and another number of workers
does so up to rounding.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from results.storage.atomic import write_atomic
from search_spaces.errors import UserError
from trainables.base import Split
from trainables.causal_lm.evaluation import EVAL_BATCH, spread
from trainables.causal_lm.model.model import open_tokenizer
from trainables.causal_lm.model.objective import masked_attention
from trainables.classifier.scorer import RewardModel, open_reward_model
from trainables.data.conversations.dataset import Conversations
from trainables.generation.generate import decode
from trainables.generation.text_ends import text_ends
from trainables.grpo.config import GRPOConfig
from trainables.grpo.rewards import Completion, rewards_of
from trainables.parallel.fsdp import device_of
from trainables.training.data_sampler import shares
from trainables.training.precision import autocast

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


EVAL_SEED = 0
"""Of the completions of evaluations: the same for all trials."""
METRICS = ("pass_at_1", "pass_at_k", "eval_reward", "eval_entropy")
Question = dict[str, Any]


@dataclass
class Answers:
    """Completions of a data set's questions by a model, and their rewards."""

    config: GRPOConfig
    dataset: Conversations

    def complete(
        self, model: nn.Module, questions: list[Question], numbers: Any, greedy: Any = None
    ) -> Completions:
        """Completions of each question; arguments as of `sample`."""
        training = model.training
        model.eval()
        prompts = [q["prompt"] for q in questions]
        with autocast(self.config.dtype, device_of(model)), masked_attention(model):
            found = sample(
                model,
                prompts,
                text_ends(model, self._tokenizer),
                self.config.temperature,
                numbers,
                greedy,
            )
        model.train(training)
        return found

    def rewards(
        self, questions: list[Question], found: Completions, samples: int
    ) -> dict[str, list[float]]:
        """Each reward of each completion, without its weight."""
        texts = self._tokenizer.batch_decode(found.texts(), skip_special_tokens=True)
        every = (q for q in questions for _ in range(samples))
        given = [
            Completion(q["question"], q["answer"], t, tuple(q.get("messages", ())), q.get("tools"))
            for q, t in zip(every, texts, strict=True)
        ]
        return rewards_of(given, self.config.rewards, self._models(found.ids.device))

    def _models(self, device: torch.device) -> dict[str, RewardModel]:
        """The reward models, which are loaded once."""
        for name, reward in self.config.rewards.items():
            if reward.path is not None and name not in self._loaded:
                self._loaded[name] = open_reward_model(reward.path, self.config.dtype, device)
        return self._loaded

    @cached_property
    def _loaded(self) -> dict[str, RewardModel]:
        return {}

    def scores(
        self,
        model: nn.Module,
        split: Split,
        rank: int,
        world_size: int,
        answers: Path | None = None,
    ) -> Iterator[dict[str, float]]:
        """The metrics of this rank's evaluated questions; rank 0 writes its first answers."""
        config, every = self.config, self.questions(split)
        chosen, samples = spread(len(every), config.eval_sequences), 1 + config.eval_samples
        for part in shares(len(chosen), EVAL_BATCH, rank, world_size):
            places, asked = chosen[part].tolist(), [every[i] for i in chosen[part]]
            numbers = noise(EVAL_SEED, 0, places, samples, config.max_new_tokens)
            greedy = np.tile(np.arange(samples) == 0, len(asked))
            found = self.complete(model, asked, numbers, greedy)
            rewards = self.rewards(asked, found, samples)
            if answers is not None and part.start == 0:
                self._write(answers, asked, found.texts()[::samples], rewards)
            yield from self._of_each(found, rewards, samples)

    def _of_each(
        self, found: Completions, rewards: dict[str, list[float]], samples: int
    ) -> Iterator[dict[str, float]]:
        weights = {name: reward.weight for name, reward in self.config.rewards.items()}
        entropies = ((found.entropies * found.counted).sum(dim=1) / found.lengths).tolist()
        for i in range(0, len(entropies), samples):
            solved = [value >= 1 for value in rewards[self.config.solves][i : i + samples]]
            yield {
                "pass_at_1": float(solved[0]),
                "pass_at_k": float(any(solved[1:])),
                "eval_reward": sum(w * rewards[name][i] for name, w in weights.items()),
                "eval_entropy": entropies[i],
            }

    def _write(
        self,
        file: Path,
        asked: list[Question],
        greedy: list[list[int]],
        rewards: dict[str, list[float]],
    ) -> None:
        samples = 1 + self.config.eval_samples
        lines = []
        for i, (question, tokens) in enumerate(zip(asked, greedy, strict=True)):
            answer = self._tokenizer.decode(tokens, skip_special_tokens=True)
            line = {"question": question["question"], "answer": answer}
            found = {name: values[i * samples] for name, values in rewards.items()}
            line |= {"expected": question["answer"], "rewards": found}
            lines.append(json.dumps(line, ensure_ascii=False) + "\n")
        write_atomic(file, "".join(lines).encode())

    def questions(self, split: Split) -> list[Question]:
        """Prompt (token ids), question and answer of each row of a split.

        Raises:
            UserError: a prompt leaves no room for a completion.
        """
        if split not in self._known:
            found = self.dataset.questions(split)
            if any(r.path for r in self.config.rewards.values()) and "messages" not in found[0]:
                raise UserError(
                    f"{self.dataset.folder}: an earlier version prepared it, without what a reward"
                    " model reads; remove it"
                )
            room = self.config.sequence_length - self.config.max_new_tokens
            for question in found:
                if len(question["prompt"]) > room:
                    raise UserError(
                        f"data: a question has {len(question['prompt'])} tokens, and"
                        f" sequence_length - max_new_tokens leaves room for {room}:"
                        f" {question['question'][:60]!r}; raise sequence_length"
                    )
            self._known[split] = found
        return self._known[split]

    @cached_property
    def _known(self) -> dict[Split, list[Question]]:
        return {}

    @cached_property
    def _tokenizer(self) -> Any:
        return open_tokenizer(self.config, self.dataset)
