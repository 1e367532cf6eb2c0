"""Learning from preferences: pairs of answers, and how much the model prefers the better ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from search_spaces.errors import UserError
from trainables.base import Split
from trainables.causal_lm.evaluation import EVAL_BATCH, spread
from trainables.causal_lm.model.compilation import may_compile
from trainables.causal_lm.model.first_model import first_model
from trainables.causal_lm.model.model import fresh_model
from trainables.causal_lm.task import LanguageTask
from trainables.client import Rows
from trainables.data.conversations.dataset import Conversations, prepare
from trainables.dpo.config import OF_PAIRS, DPOConfig
from trainables.dpo.loss import PreferenceLoss, score_answers
from trainables.dpo.reference import Divergence, reference_log_probs
from trainables.sft.task import place_of, with_start
from trainables.training.data_sampler import Sampler, shares, to_device
from trainables.worker import Worker

METRICS = (
    *("accuracy", "ranking_accuracy", "reward_margin"),
    *("chosen_reward", "rejected_reward", "eval_loss"),
)


@dataclass
class DPOTask(LanguageTask):
    """Prefer some answers more than others."""

    config: DPOConfig
    dataset: Conversations
    reference: dict[Split, npt.NDArray[np.float32]]

    @classmethod
    def open(
        cls, config: DPOConfig, cache: Path, key: str | None = None, worker: Worker | None = None
    ) -> DPOTask:
        """The task, with its answers and what the first model makes of them, if it counts.

        Raises:
            UserError: all answers to train on have the same label.
        """
        config = with_start(config, cache, worker)
        with worker.times.of("data") if worker else nullcontext():
            dataset = prepare(config, config.data, cache, key)
            reference = {}
            if config.has_reference:
                base_of = first_model if worker else fresh_model
                reference = reference_log_probs(config, dataset, cache, *place_of(worker), base_of)
        return cls(config, dataset, reference)

    def __post_init__(self) -> None:
        self._divergence = Divergence(self.config, self.dataset)
        self._weight, self._kl = 0.0, torch.zeros(())
        self._sampler: Sampler | None = None
        self._labels = {} if self._in_pairs else {s: self.dataset.labels(s) for s in Split}
        if self._labels and len({*self._labels[Split.TRAIN].tolist()}) == 1:
            raise UserError(
                f"data.label: all answers to train on have the same '{self.config.data.label}'"
            )

    @property
    def _in_pairs(self) -> bool:
        return self.config.data.label is None

    def _lengths(self, split: Split) -> Rows:
        return self.dataset.arrays(split)[2]

    @property
    def size(self) -> int:
        """Rows of the train split."""
        return len(self._lengths(Split.TRAIN)) // self.config.data.answers_of_row

    def updates(self, number: int, rows: Rows, model: nn.Module, worker: Worker) -> Sequence[Rows]:
        """Note what the losses of a batch of all ranks have in common."""
        if self._sampler is None:
            self._sampler = Sampler(self.size, self.config.batch_size, worker.seed)
        batch, first = self._sampler.batch_rows(number), worker.mesh.dp_rank * len(rows)
        self._weight = self._token_weight(Split.TRAIN, batch)
        if self.config.loss == "kto":
            before = np.roll(batch, 1)[first : first + len(rows)]
            asked, others = self._answers(rows), self._answers(before)
            total = self._divergence.total(model, Split.TRAIN, asked, others)
            mean = worker.sum({"kl": float(total)})["kl"] / len(self._answers(batch))
            self._kl = total.new_tensor(max(mean, 0.0))
        return (rows,)

    def batch(self, rows: Rows, device: torch.device) -> tuple[torch.Tensor | None, ...]:
        """The inputs of `PreferenceLoss`."""
        weight = self._weight or self._token_weight(Split.TRAIN, rows)
        return self._inputs(Split.TRAIN, self._answers(rows), device, weight, self._kl)

    def objective(self, model: nn.Module) -> nn.Module:
        """The mean loss of rows."""
        return PreferenceLoss(model, self.config)

    def num_items(self, rows: Rows) -> int:
        """Tokens of the answers and of their questions."""
        return int(self._lengths(Split.TRAIN)[self._answers(rows)].sum())

    def train_metrics(self, worker: Worker) -> dict[str, float]:
        """With kto, the divergence in the last step."""
        found = super().train_metrics(worker)
        return {**found, "kl": float(self._kl)} if self.config.loss == "kto" else found

    def evaluate(
        self,
        model: nn.Module,
        split: Split,
        worker: Worker | None = None,
        answers: Path | None = None,
    ) -> dict[str, float]:
        """Share of pairs whose preferred answer gained more; rewards, their margin, the loss."""
        rank, world_size = (worker.rank, worker.world_size) if worker else (0, 1)
        each = self._each(model, split, rank, world_size)
        sums = {name: math.fsum(values) for name, values in each.items()}
        sums |= {f"{name} count": float(len(values)) for name, values in each.items()}
        if worker is not None:
            sums = worker.sum(sums)
        counts = {name: sums[f"{name} count"] for name in each}
        return {name: sums[name] / n if n else math.nan for name, n in counts.items()}

    def examples(self, model: nn.Module, split: Split) -> dict[str, list[float]]:
        """The metrics of `evaluate` of each pair, or of each answer that they are of."""
        return self._each(model, split, 0, 1)

    def _each(
        self, model: nn.Module, split: Split, rank: int, world_size: int
    ) -> dict[str, list[float]]:
        size = self.config.data.answers_of_row
        chosen = spread(len(self._lengths(split)) // size, self.config.eval_sequences)
        training, device = model.training, next(model.parameters()).device
        model.eval()
        found: dict[str, list[float]] = {
            n: [] for n in METRICS if self._in_pairs or n not in OF_PAIRS
        }
        weight, kl = self._token_weight(split, chosen), torch.zeros((), device=device)
        for part in shares(len(chosen), EVAL_BATCH, rank, world_size):
            rows = self._answers(chosen[part])
            if self.config.loss == "kto":
                total = self._divergence.total(model, split, rows, np.roll(rows, size))
                kl = (total / len(rows)).clamp(min=0)
            with torch.no_grad():
                values = self._scores(model, *self._inputs(split, rows, device, weight, kl))
            for name, value in values.items():
                found[name] += value.double().tolist()
        model.train(training)
        return found

    def _scores(self, model: nn.Module, *inputs: Any) -> dict[str, torch.Tensor]:
        per_token, rewards, losses = score_answers(model, self.config, *inputs)
        if not self._in_pairs:
            desired = inputs[4]
            return {
                "accuracy": ((rewards > 0) == desired).float(),
                "chosen_reward": rewards[desired],
                "rejected_reward": rewards[~desired],
                "eval_loss": losses,
            }
        chosen, rejected = rewards[::2], rewards[1::2]
        return {
            "accuracy": (chosen > rejected).float(),
            "ranking_accuracy": (per_token[::2] > per_token[1::2]).float(),
            "reward_margin": chosen - rejected,
            "chosen_reward": chosen,
            "rejected_reward": rejected,
            "eval_loss": losses.view(len(chosen), -1).mean(dim=1),
        }

    def _answers(self, rows: Rows) -> Rows:
        """The sequences of rows; of a pair, the preferred answer and then the rejected one."""
        if not self._in_pairs:
            return rows
        return (2 * rows[:, None] + np.arange(2)).reshape(-1)

    def _inputs(
        self, split: Split, rows: Rows, device: torch.device, weight: float, kl: torch.Tensor
    ) -> tuple[torch.Tensor | None, ...]:
        compiled = may_compile(self.config, device)
        tokens, counted = self.dataset.inputs(split, rows, device, compiled=compiled)
        reference = weights = None
        if self.config.has_reference:
            reference = to_device(self.reference[split][rows], device)
        if self.config.loss == "orpo":
            sizes = to_device(self._lengths(split)[rows], device)
            weights = weight * (torch.arange(1, tokens.shape[1], device=device) < sizes[:, None])
        if self.config.loss != "kto":
            return tokens, counted, reference, weights
        labels = rows % 2 == 0 if self._in_pairs else self._labels[split][rows]
        return tokens, counted, reference, None, to_device(labels, device), kl

    def _token_weight(self, split: Split, pairs: Rows) -> float:
        """Of orpo, of a token of a preferred text: means over pairs become one over tokens."""
        if self.config.loss != "orpo":
            return 0.0
        return len(pairs) / float((self._lengths(split)[2 * pairs] - 1).sum())
