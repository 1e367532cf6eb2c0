"""Learning from preferences: pairs of answers, and how much the model prefers the better ones."""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from trainables.base import Split
from trainables.causal_lm.evaluation import EVAL_BATCH, spread
from trainables.causal_lm.model.compilation import may_compile
from trainables.causal_lm.task import LanguageTask
from trainables.client import Rows
from trainables.common.data_sampler import shares
from trainables.data.conversations.dataset import Conversations, prepare
from trainables.dpo.config import DPOConfig
from trainables.dpo.loss import PreferenceLoss, answer_log_probs, preference_losses
from trainables.dpo.reference import reference_log_probs
from trainables.sft.task import place_of, with_start
from trainables.worker import Worker

METRICS = ("accuracy", "reward_margin", "chosen_reward", "rejected_reward", "eval_loss")


@dataclass
class DPOTask(LanguageTask):
    """Prefer one of two answers more than the first model does."""

    config: DPOConfig
    dataset: Conversations
    reference: dict[Split, npt.NDArray[np.float32]]

    @classmethod
    def open(
        cls, config: DPOConfig, cache: Path, key: str | None = None, worker: Worker | None = None
    ) -> DPOTask:
        """The task, with its pairs and what the first model makes of them."""
        config = with_start(config, cache, worker)
        with worker.times.of("data") if worker else nullcontext():
            dataset = prepare(config, config.data, cache, key)
            reference = reference_log_probs(config, dataset, cache, *place_of(worker))
        return cls(config, dataset, reference)

    @property
    def size(self) -> int:
        """Pairs of the train split."""
        return len(self.reference[Split.TRAIN]) // 2

    def batch(self, rows: Rows, device: torch.device) -> tuple[torch.Tensor, ...]:
        """The inputs of `PreferenceLoss`."""
        return self._inputs(Split.TRAIN, rows, device)

    def objective(self, model: nn.Module) -> nn.Module:
        """The mean loss of pairs."""
        return PreferenceLoss(model, self.config)

    def num_items(self, rows: Rows) -> int:
        """Tokens of both answers and of their questions."""
        return int(self.dataset.lengths(Split.TRAIN)[_both(rows)].sum())

    def evaluate(
        self,
        model: nn.Module,
        split: Split,
        worker: Worker | None = None,
        answers: Path | None = None,
    ) -> dict[str, float]:
        """Share of pairs whose preferred answer gained more; rewards, their margin, the loss."""
        rank, world_size = (worker.rank, worker.world_size) if worker else (0, 1)
        sums = {k: math.fsum(v) for k, v in self._each(model, split, rank, world_size).items()}
        if worker is not None:
            sums = worker.sum(sums)
        return {name: sums[name] / sums["count"] for name in METRICS}

    def examples(self, model: nn.Module, split: Split) -> dict[str, list[float]]:
        """The metrics of `evaluate` of each pair."""
        each = self._each(model, split, 0, 1)
        return {name: each[name] for name in METRICS}

    def _each(
        self, model: nn.Module, split: Split, rank: int, world_size: int
    ) -> dict[str, list[float]]:
        chosen = spread(len(self.reference[split]) // 2, self.config.eval_sequences)
        training, device = model.training, next(model.parameters()).device
        model.eval()
        found: dict[str, list[float]] = {name: [] for name in (*METRICS, "count")}
        for part in shares(len(chosen), EVAL_BATCH, rank, world_size):
            with torch.no_grad():
                values = self._scores(model, *self._inputs(split, chosen[part], device))
            for name, value in values.items():
                found[name] += value.double().tolist()
        model.train(training)
        return found

    def _scores(
        self,
        model: nn.Module,
        tokens: torch.Tensor,
        counted: torch.Tensor,
        reference: torch.Tensor,
    ) -> dict[str, torch.Tensor]:
        changes = answer_log_probs(model, tokens, counted, self.config) - reference
        rewards = self.config.beta * changes
        chosen, rejected = rewards[::2], rewards[1::2]
        return {
            "accuracy": (chosen > rejected).float(),
            "reward_margin": chosen - rejected,
            "chosen_reward": chosen,
            "rejected_reward": rejected,
            "eval_loss": preference_losses(changes, counted.sum(dim=1), self.config),
            "count": torch.ones_like(chosen),
        }

    def _inputs(self, split: Split, pairs: Rows, device: torch.device) -> tuple[torch.Tensor, ...]:
        rows = _both(pairs)
        compiled = may_compile(self.config, device)
        tokens, counted = self.dataset.inputs(split, rows, device, compiled=compiled)
        return tokens, counted, torch.from_numpy(self.reference[split][rows]).to(device)


def _both(pairs: Rows) -> Rows:
    """Sequences of pairs: a preferred answer, then the rejected one."""
    return (2 * pairs[:, None] + np.arange(2)).reshape(-1)
