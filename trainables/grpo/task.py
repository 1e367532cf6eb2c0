"""Learning from rewards: completions of a step's questions, and answers to held-out ones."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from trainables.base import Split
from trainables.causal_lm.lora import without_adapter
from trainables.causal_lm.model.compilation import may_compile
from trainables.causal_lm.model.model import as_first, new_model
from trainables.causal_lm.model.objective import shard_or_move
from trainables.causal_lm.model.packing import Packing, packing_of, set_packing
from trainables.causal_lm.task import LanguageTask
from trainables.client import Rows
from trainables.data.conversations.dataset import Conversations, prepare
from trainables.grpo.answers import METRICS, Answers, Completions, Question, noise
from trainables.grpo.config import GRPOConfig
from trainables.grpo.loss import PolicyLoss, advantages, token_log_probs, token_weights
from trainables.grpo.packing import PASS, ROW, AnswerPacking
from trainables.grpo.rewards import short_name
from trainables.parallel.fsdp import device_of, free_gathered, gathered
from trainables.parallel.mesh import ALONE, Mesh
from trainables.sft.task import with_start
from trainables.training.data_sampler import to_device
from trainables.training.task import Inputs
from trainables.worker import Worker


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
        found = Completions(*(values.cpu() for values in vars(found).values()))  # waits once
        with worker.times.of("data"):
            total = self._judged(questions, found)
            self._passes = self._prepared(model, questions, found, total, worker)
        return [np.arange(len(self._passes))] * self.config.updates_per_step

    def _judged(self, questions: list[Question], found: Completions) -> torch.Tensor:
        """The sum of the rewards, float32 [questions, group_size]; notes what is reported."""
        size, config = self.config.group_size, self.config
        each = self._answers.rewards(questions, found, size)
        weighted = [torch.tensor(each[n]) * r.weight for n, r in config.rewards.items()]
        total = torch.stack(weighted).sum(dim=0).float().reshape(-1, size)
        spreads = total.double().std(dim=1)  # exact where all are equal
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
        self,
        model: nn.Module,
        questions: list[Question],
        found: Completions,
        total: torch.Tensor,
        worker: Worker,
    ) -> list[Inputs]:
        """The inputs of each pass; all ranks have as many."""
        config, prompts = self.config, [q["prompt"] for q in questions]
        sizes = found.lengths.tolist()
        answers = [ids[:n] for ids, n in zip(found.ids.tolist(), sizes, strict=True)]
        packing = self._packing(model, len(questions), worker.device)
        rows = packing.pack(prompts, answers)
        ranks = [f"rank {rank}" for rank in range(worker.mesh.dp_size)]
        told = dict.fromkeys(ranks, 0.0) | {"tokens": sum(sizes), "asked": sum(map(len, prompts))}
        sums = worker.sum(told | {ranks[worker.mesh.dp_rank]: -(-len(rows) // packing.rows)})
        self._tokens = int(sums["tokens"] + sums["asked"])
        count, most = config.batch_size * config.group_size, config.max_new_tokens
        weights = token_weights(config.loss, found.lengths, count, sums["tokens"], most)
        advantage = advantages(total, config.scale_rewards).reshape(-1)
        number, passes = int(max(sums[rank] for rank in ranks)), []
        for rows_of_pass, (sources, answer, place) in packing.passes(rows, number):
            chances = found.log_probs[answer, place]
            numbers = torch.stack([weights[answer], advantage[answer], chances]) * (answer >= 0)
            given = rows_of_pass, torch.stack([sources, found.ids[answer, place]]), numbers
            (tokens, positions), targets, numbers = (to_device(t, worker.device) for t in given)
            inputs = tokens, positions if packing.shared else None, *targets
            passes.append((*inputs, numbers, self._by_reference(model, inputs, worker.mesh)))
        return passes

    def _packing(self, model: nn.Module, questions: int, device: torch.device) -> AnswerPacking:
        config = self.config
        group = config.sequence_length + (config.group_size - 1) * config.max_new_tokens
        most = min(group, max(config.sequence_length, ROW))
        length = -(-most // 8) * 8  # of the longest row
        packing = packing_of(model, length)
        set_packing(model, packing, length)  # a comparison for each length could not be compiled
        shared = packing is Packing.MASK
        if not shared:
            most, group = config.sequence_length, config.group_size * config.sequence_length
        questions = min(questions, config.micro_batch_size or questions)
        rows = max(1, min(PASS // most, questions * -(-group // most)))
        return AnswerPacking(most, shared, may_compile(config, device), rows)

    @torch.no_grad()
    def _by_reference(
        self, model: nn.Module, inputs: tuple[Any, ...], mesh: Mesh
    ) -> torch.Tensor | None:
        """Log-probabilities of a pass's targets by the model at step 0; None with `beta` 0."""
        if self.config.beta == 0:
            return None
        lora = self.config.lora
        if self._reference is None and (lora is None or not lora.is_separable):
            self._reference = as_first(new_model(self.config, self.dataset), self.config).eval()
            set_packing(self._reference, Packing.MASK)  # the same architecture
            shard_or_move(self._reference, self.config, mesh, device_of(model))
        first = self._reference or model
        with without_adapter(first):
            found = token_log_probs(first, self.config, *inputs)
        free_gathered(first)
        return found

    _reference: nn.Module | None = None

    @property
    def micro_batch_size(self) -> int:
        """One: rows are passes, which `micro_batch_size` has limited."""
        return 1

    def batch(self, rows: Rows, device: torch.device) -> Inputs:
        """The inputs of `PolicyLoss` in a pass."""
        return self._passes[int(rows[0])]

    def objective(self, model: nn.Module) -> nn.Module:
        """The weighted sum of the losses of the completions' tokens."""
        self._loss = PolicyLoss(model, self.config)
        return self._loss

    def num_targets(self, rows: Rows) -> int:
        """One: the tokens are weighted already."""
        return 1

    def num_items(self, rows: Rows) -> int:
        """Tokens of the last step's completions, and of its questions once."""
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
