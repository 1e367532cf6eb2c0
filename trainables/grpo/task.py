"""Learning from rewards: completions of a step's questions, and answers to held-out ones."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn

from trainables.base import Split
from trainables.causal_lm.loop import train_task
from trainables.causal_lm.model import new_model
from trainables.causal_lm.objective import place
from trainables.causal_lm.task import EVAL_BATCH
from trainables.client import Rows
from trainables.grpo.answers import METRICS, Answers, Question
from trainables.grpo.config import GRPOConfig
from trainables.grpo.loss import PolicyLoss, advantages, token_log_probs, token_weights
from trainables.grpo.rewards import short_name
from trainables.grpo.rollout import Completions, noise
from trainables.sft.data import Conversations, prepare
from trainables.sft.task import with_start
from trainables.worker import Worker

WIDTHS = 8
"""Batches are padded to one of so many widths."""


def train(config: GRPOConfig, worker: Worker) -> None:
    """Train one trial on this rank, from a start that is made if it must be."""
    with worker.times.of("data"):
        config = with_start(config, worker.cache, worker)
    train_task(open_task(config, worker.cache), worker)


def open_task(config: GRPOConfig, cache: Path, key: str | None = None) -> GRPOTask:
    """The task of a configuration, with its questions prepared.

    Raises:
        UserError: the data cannot be prepared, has another key, or a question is too long.
    """
    config = with_start(config, cache)
    return GRPOTask(config, prepare(config, config.data, cache, key, train_questions=True))


@dataclass(frozen=True)
class _Rollout:
    """This rank's completions of a step, as the inputs of `PolicyLoss`."""

    tokens: torch.Tensor
    weights: torch.Tensor
    advantage: torch.Tensor
    old: torch.Tensor
    reference: torch.Tensor | None


@dataclass
class GRPOTask:
    """Complete questions so that the rewards are high."""

    config: GRPOConfig
    dataset: Conversations

    def __post_init__(self) -> None:
        self._seen: dict[str, list[float]] = defaultdict(list)
        self._tokens = 0
        self._entropy = self._sampled = 0.0
        self._answers = Answers(self.config, self.dataset)

    @property
    def size(self) -> int:
        """Questions of the train split."""
        return len(self._answers.questions(Split.TRAIN))

    def updates(self, step: int, rows: Rows, model: nn.Module, worker: Worker) -> Sequence[Rows]:
        """Sample and judge completions of this rank's questions, which `batch` numbers from 0."""
        questions = [self._answers.questions(Split.TRAIN)[i] for i in rows]
        first = worker.rank * len(rows)  # in the batch of all ranks
        places = range(first, first + len(rows))
        numbers = noise(
            worker.seed, step, places, self.config.group_size, self.config.max_new_tokens
        )
        found = self._answers.complete(model, questions, self.config.group_size, numbers)
        with worker.times.of("data"):
            total = self._judged(questions, found)
        self._rollout = self._prepared(questions, found, total, worker)
        return [np.arange(len(rows))] * self.config.updates_per_step

    def _judged(self, questions: list[Question], found: Completions) -> torch.Tensor:
        """The sum of the rewards, float32 [questions, group_size]; notes what is reported."""
        size, config = self.config.group_size, self.config
        each = self._answers.rewards(questions, found, size)
        weighted = [torch.tensor(each[n]) * r.weight for n, r in config.rewards.items()]
        total = torch.stack(weighted).sum(dim=0).float().reshape(-1, size)
        spreads = total.std(dim=1)
        values = {
            "reward": total.mean(),
            "reward_std": spreads.mean(),
            "groups_without_spread": (spreads == 0).float().mean(),
            "completion_length": found.lengths.float().mean(),
            "unfinished": (~found.ended).float().mean(),
        }
        if len(each) > 1:
            values |= {f"reward_{short_name(n)}": torch.tensor(v).mean() for n, v in each.items()}
        self._entropy += float((found.entropies * found.counted).sum())
        self._sampled += float(found.lengths.sum())
        for name, value in values.items():
            self._seen[name].append(float(value))
        return total

    def _prepared(
        self, questions: list[Question], found: Completions, total: torch.Tensor, worker: Worker
    ) -> _Rollout:
        config, device = self.config, found.ids.device
        sums = worker.sum({"tokens": float(found.lengths.sum())})
        count = config.batch_size * config.group_size
        per_token = token_weights(
            config.loss, found.lengths, count, sums["tokens"], config.max_new_tokens
        )
        prompts = [q["prompt"] for q in questions for _ in range(config.group_size)]
        tokens, weights, old = self._padded(prompts, found, per_token)
        asked = sum(len(prompt) for prompt in prompts) * worker.world_size
        self._tokens = int(sums["tokens"]) + asked
        reference = None if config.beta == 0 else self._by_reference(tokens)
        advantage = advantages(total, config.scale_rewards).reshape(-1).to(device)
        return _Rollout(tokens, weights, advantage, old, reference)

    def _padded(
        self, prompts: list[list[int]], found: Completions, per_token: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Tokens, their weights and log-probabilities; what follows a completion has no weight."""
        device, lengths = found.ids.device, found.lengths.tolist()
        most = max(len(p) + n for p, n in zip(prompts, lengths, strict=True))
        part = -(-self.config.sequence_length // WIDTHS)
        width = -(-most // part) * part
        tokens = torch.full((len(prompts), width), self.dataset.end, device=device)
        weights = torch.zeros(len(prompts), width - 1, device=device)
        old = torch.zeros(len(prompts), width - 1, device=device)
        for i, (prompt, size) in enumerate(zip(prompts, lengths, strict=True)):
            begin, until = len(prompt), len(prompt) + size
            tokens[i, :begin] = torch.tensor(prompt, device=device)
            tokens[i, begin:until] = found.ids[i, :size]
            weights[i, begin - 1 : until - 1] = per_token[i]
            old[i, begin - 1 : until - 1] = found.log_probs[i, :size]
        return tokens, weights, old

    @torch.no_grad()
    def _by_reference(self, tokens: torch.Tensor) -> torch.Tensor:
        """Log-probabilities by the model at step 0, of 16 sequences at a time."""
        if self._reference is None:
            self._reference = place(new_model(self.config, self.dataset), tokens.device).eval()
        each = torch.split(tokens, EVAL_BATCH)
        parts = [token_log_probs(self._reference, t, self.config) for t in each]
        return torch.cat(parts)

    _reference: nn.Module | None = None

    def batch(self, rows: Rows, device: torch.device) -> tuple[torch.Tensor | None, ...]:
        """The inputs of `PolicyLoss` for some of this rank's questions."""
        size, rollout = self.config.group_size, self._rollout
        index = (torch.from_numpy(rows)[:, None] * size + torch.arange(size)).reshape(-1)
        every = (rollout.tokens, rollout.weights, rollout.advantage, rollout.old, rollout.reference)
        return tuple(None if t is None else t[index.to(t.device)] for t in every)

    def loss(self, model: nn.Module) -> nn.Module:
        """The weighted sum of the losses of the completions' tokens."""
        self._loss = PolicyLoss(model, self.config)
        return self._loss

    def num_targets(self, rows: Rows) -> int:
        """One: the tokens are weighted already."""
        return 1

    def num_tokens(self, rows: Rows) -> int:
        """Tokens of the last step's questions and completions."""
        return self._tokens

    def train_metrics(self, worker: Worker) -> dict[str, float]:
        """Means over the steps since the last call, and over the tokens of all ranks."""
        found = {name: sum(values) / len(values) for name, values in self._seen.items()}
        self._seen.clear()
        seen, names = self._loss.seen, list(self._loss.seen[0])
        sums = {name: sum(float(parts[name]) for parts in seen) for name in names}
        seen.clear()
        sums = worker.sum({**sums, "entropy": self._entropy, "sampled": self._sampled})
        self._entropy = self._sampled = 0.0
        found["entropy"] = sums["entropy"] / sums["sampled"]
        return found | {k: sums[k] / sums["tokens"] for k in names if k != "tokens"}

    def evaluate(
        self,
        model: nn.Module,
        split: Split,
        worker: Worker | None = None,
        answers: Path | None = None,
    ) -> dict[str, float]:
        """Share of questions solved greedily and by one of k samples; reward and entropy."""
        rank, world_size = (worker.rank, worker.world_size) if worker else (0, 1)
        each = list(self._answers.scores(model, split, rank, world_size, answers))
        sums = {name: sum(e[name] for e in each) for name in METRICS}
        sums["count"] = float(len(each))
        if worker is not None:
            sums = worker.sum(sums)
        return {name: sums[name] / sums["count"] for name in METRICS}

    def examples(self, model: nn.Module, split: Split) -> dict[str, list[float]]:
        """The metrics of `evaluate` of each question."""
        each = list(self._answers.scores(model, split, 0, 1))
        return {name: [e[name] for e in each] for name in METRICS}
