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
from trainables.causal_lm.evaluation import EVAL_BATCH
from trainables.causal_lm.model.compilation import may_compile
from trainables.causal_lm.model.model import as_first, new_model
from trainables.causal_lm.model.objective import shard_or_move
from trainables.causal_lm.task import LanguageTask
from trainables.client import Rows
from trainables.data.conversations.dataset import Conversations, prepare
from trainables.grpo.answers import METRICS, Answers, Question
from trainables.grpo.config import GRPOConfig
from trainables.grpo.loss import PolicyLoss, advantages, token_log_probs, token_weights
from trainables.grpo.rewards import short_name
from trainables.grpo.rollout import Completions, noise
from trainables.parallel.fsdp import free_gathered, gathered
from trainables.parallel.mesh import ALONE, Mesh
from trainables.sft.task import with_start
from trainables.training.task import Inputs
from trainables.worker import Worker

WIDTHS = 8
"""Compiled batches are padded to one of so many widths."""


@dataclass
class GRPOTask(LanguageTask):
    """Complete questions so that the rewards are high."""

    config: GRPOConfig
    dataset: Conversations

    @classmethod
    def open(
        cls, config: GRPOConfig, cache: Path, key: str | None = None, worker: Worker | None = None
    ) -> GRPOTask:
        """The task, with its questions prepared; UserError if one is too long."""
        config = with_start(config, cache, worker)
        return cls(config, prepare(config, config.data, cache, key, train_questions=True))

    def __post_init__(self) -> None:
        self._seen: dict[str, list[float]] = defaultdict(list)
        self._tokens = 0
        self._entropy = self._sampled = 0.0
        self._answers = Answers(self.config, self.dataset)

    @property
    def size(self) -> int:
        """Questions of the train split."""
        return len(self._answers.questions(Split.TRAIN))

    def updates(self, number: int, rows: Rows, model: nn.Module, worker: Worker) -> Sequence[Rows]:
        """Sample and judge completions of this rank's questions, which `batch` numbers from 0."""
        questions = [self._answers.questions(Split.TRAIN)[i] for i in rows]
        first = worker.mesh.dp_rank * len(rows)  # in the batch of all ranks
        places = range(first, first + len(rows))
        numbers = noise(
            worker.seed, number + 1, places, self.config.group_size, self.config.max_new_tokens
        )
        with gathered(model, worker.mesh):
            found = self._answers.complete(model, questions, numbers)
        with worker.times.of("data"):
            total = self._judged(questions, found)
        self._inputs = self._prepared(questions, found, total, worker)
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
    ) -> Inputs:
        config, device = self.config, found.ids.device
        sums = worker.sum({"tokens": float(found.lengths.sum())})
        count = config.batch_size * config.group_size
        per_token = token_weights(
            config.loss, found.lengths, count, sums["tokens"], config.max_new_tokens
        )
        prompts = [q["prompt"] for q in questions for _ in range(config.group_size)]
        tokens, weights, old = self._padded(prompts, found, per_token)
        asked = sum(len(prompt) for prompt in prompts) * worker.mesh.dp_size
        self._tokens = int(sums["tokens"]) + asked
        last = old.shape[1]
        reference = None if config.beta == 0 else self._by_reference(tokens, last, worker.mesh)
        advantage = advantages(total, config.scale_rewards).reshape(-1).to(device)
        return tokens, weights, advantage, old, reference

    def _padded(
        self, prompts: list[list[int]], found: Completions, per_token: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Tokens; weights and log-probabilities of the last of them, 0 outside of completions."""
        device, end = found.ids.device, self.dataset.end
        sizes = torch.tensor([len(prompt) for prompt in prompts], device=device)
        compiled = may_compile(self.config, device)
        part = -(-self.config.sequence_length // WIDTHS) if compiled else 1
        width = -(-int((sizes + found.lengths).max()) // part) * part
        last = min(width - 1, -(-(width - int(sizes.min())) // part) * part)
        tokens = torch.full((len(prompts), width), end, device=device)
        weights, old = torch.zeros(2, len(prompts), last, device=device)
        for row, prompt in zip(tokens, prompts, strict=True):
            row[: len(prompt)] = torch.tensor(prompt, device=device)
        rows, places = found.counted.nonzero(as_tuple=True)
        columns = sizes[rows] + places
        tokens[rows, columns] = found.ids[rows, places]
        weights[rows, columns - width] = per_token[rows]  # counted from the end
        old[rows, columns - width] = found.log_probs[rows, places]
        return tokens, weights, old

    @torch.no_grad()
    def _by_reference(self, tokens: torch.Tensor, last: int, mesh: Mesh) -> torch.Tensor:
        """Log-probabilities of the last tokens by the model at step 0, 16 sequences at a time."""
        if self._reference is None:
            self._reference = as_first(new_model(self.config, self.dataset), self.config).eval()
            shard_or_move(self._reference, self.config, mesh, tokens.device)
        each = torch.split(tokens, EVAL_BATCH)
        parts = [token_log_probs(self._reference, t, last, self.config) for t in each]
        free_gathered(self._reference)
        return torch.cat(parts)

    _reference: nn.Module | None = None

    def batch(self, rows: Rows, device: torch.device) -> Inputs:
        """The inputs of `PolicyLoss` for some of this rank's questions."""
        size = self.config.group_size
        index = (torch.from_numpy(rows)[:, None] * size + torch.arange(size)).reshape(-1)
        return tuple(None if t is None else t[index.to(t.device)] for t in self._inputs)

    def objective(self, model: nn.Module) -> nn.Module:
        """The weighted sum of the losses of the completions' tokens."""
        self._loss = PolicyLoss(model, self.config)
        return self._loss

    def num_targets(self, rows: Rows) -> int:
        """One: the tokens are weighted already."""
        return 1

    def num_items(self, rows: Rows) -> int:
        """Tokens of the last step's questions and completions."""
        return self._tokens

    def train_metrics(self, worker: Worker) -> dict[str, float]:
        """Means over the steps since the last call, and over the tokens of all ranks."""
        found = super().train_metrics(worker)
        found |= {name: sum(values) / len(values) for name, values in self._seen.items()}
        self._seen.clear()
        seen = self._loss.seen
        names, sums = list(seen), {name: float(value) for name, value in seen.items()}
        self._loss.seen = {name: torch.zeros_like(value) for name, value in seen.items()}
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
        mesh = worker.mesh if worker else ALONE
        with gathered(model, mesh):
            found = self._answers.scores(model, split, mesh.dp_rank, mesh.dp_size, answers)
            each = list(found)
        sums = {name: sum(e[name] for e in each) for name in METRICS}
        sums["count"] = float(len(each))
        if worker is not None:
            sums = worker.sum(sums)
        return {name: sums[name] / sums["count"] for name in METRICS}

    def examples(self, model: nn.Module, split: Split) -> dict[str, list[float]]:
        """The metrics of `evaluate` of each question."""
        each = list(self._answers.scores(model, split, 0, 1))
        return {name: [e[name] for e in each] for name in METRICS}
