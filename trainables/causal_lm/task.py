"""What a language model learns: batches to train on, and the scores of an evaluation."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import Protocol, Self

import numpy as np
import torch
from torch import nn

from trainables.base import Split
from trainables.causal_lm.config import CausalLMConfig
from trainables.causal_lm.model.objective import (
    Inputs,
    NextTokenLoss,
    next_token_loss,
    text_inputs,
    to_device,
)
from trainables.client import Rows
from trainables.common.data_sampler import shares, shares_in_step
from trainables.data.text.dataset import Dataset, Tokens, prepare
from trainables.parallel.fsdp import device_of
from trainables.worker import Worker

EVAL_BATCH = 16
"""Sequences per evaluation batch: fixed, so that metrics do not depend on `batch_size`."""
DATA_KEY = "data.json"


class Task(Protocol):
    """The data of a trial, as the training loop and the evaluation see it."""

    @property
    def config(self) -> CausalLMConfig:
        """Of the trial; `max_steps` is known, also where it follows from the data."""
        ...

    @property
    def dataset(self) -> Dataset:
        """The prepared data."""
        ...

    @property
    def size(self) -> int:
        """Sequences of the train split."""
        ...

    def updates(self, step: int, rows: Rows, model: nn.Module, worker: Worker) -> Sequence[Rows]:
        """Prepare a step on this rank's sequences: the rows of each of its optimizer steps."""
        ...

    def train_metrics(self, worker: Worker) -> dict[str, float]:
        """Metrics of the training since the last call, beside the loss; of all or of this rank."""
        ...

    def batch(self, rows: Rows, device: torch.device) -> tuple[torch.Tensor | None, ...]:
        """The inputs of `loss` for rows of `updates`: sequences of the train split."""
        ...

    def loss(self, model: nn.Module) -> nn.Module:
        """What is trained: the mean loss of a batch, a scalar."""
        ...

    def num_targets(self, rows: Rows) -> int:
        """Tokens over which the loss of these sequences of the train split is a mean."""
        ...

    def num_tokens(self, rows: Rows) -> int:
        """Tokens of these sequences of the train split, without padding."""
        ...

    def evaluate(
        self,
        model: nn.Module,
        split: Split,
        worker: Worker | None = None,
        answers: Path | None = None,
    ) -> dict[str, float]:
        """Metrics of a model on a split. With a worker, the ranks share the sequences.

        Args:
            model: on its device.
            split: which part of the data.
            worker: this rank; None: there are no others.
            answers: file for examples of what the model writes, if it does.
        """
        ...

    def examples(self, model: nn.Module, split: Split) -> dict[str, list[float]]:
        """The metrics of `evaluate` of each sequence of a split."""
        ...


def open_task(config: CausalLMConfig, cache: Path, key: str | None = None) -> Task:
    """The task of a configuration, with its data prepared.

    Args:
        config: of a trial.
        cache: folder of prepared data.
        key: the key that the data must have; None: any.

    Raises:
        UserError: the data cannot be prepared, or has another key.
    """
    module, _, name = config.task.partition(":")
    opened: Callable[[CausalLMConfig, Path, str | None], Task]
    opened = attrgetter(name)(import_module(module))
    return opened(config, cache, key)


def task_of(config: CausalLMConfig, weights: Path, cache: Path) -> Task:
    """The task on which weights were trained, by the data's key in their folder if there is one."""
    known = weights / DATA_KEY
    return open_task(
        config, cache, json.loads(known.read_text())["key"] if known.exists() else None
    )


class FixedData:
    """Of tasks whose data does not depend on the model: one optimizer step on each batch."""

    def updates(self, step: int, rows: Rows, model: nn.Module, worker: Worker) -> Sequence[Rows]:
        """One optimizer step on the given sequences."""
        return (rows,)

    def train_metrics(self, worker: Worker) -> dict[str, float]:
        """None beside the loss."""
        return {}


@dataclass(frozen=True)
class TextTask(FixedData):
    """Predict every next token of texts."""

    config: CausalLMConfig
    dataset: Dataset
    rows: Tokens

    @classmethod
    def open(cls, config: CausalLMConfig, cache: Path, key: str | None = None) -> Self:
        """The task, with its text prepared."""
        dataset = prepare(config, cache, key)
        return cls(config, dataset, dataset.sequences(Split.TRAIN))

    @property
    def size(self) -> int:
        """Sequences of the train split."""
        return len(self.rows)

    def batch(self, rows: Rows, device: torch.device) -> Inputs:
        """Token ids, int64 [rows, sequence_length + 1], and with `packing: documents` positions."""
        end = separator(self.dataset, self.config)
        return text_inputs(to_device(self.rows[rows], device), end)

    def loss(self, model: nn.Module) -> nn.Module:
        """The mean loss of the next tokens."""
        return NextTokenLoss(model, self.config)

    def num_targets(self, rows: Rows) -> int:
        """All tokens but the first of each sequence."""
        return len(rows) * self.config.sequence_length

    num_tokens = num_targets

    def evaluate(
        self,
        model: nn.Module,
        split: Split,
        worker: Worker | None = None,
        answers: Path | None = None,
    ) -> dict[str, float]:
        """Mean loss over a split's tokens (nats), perplexity and bits per byte."""
        rows = evaluated_rows(self.dataset, split, self.config)
        return rows.scores(eval_loss(model, rows, self.config, worker))

    def examples(self, model: nn.Module, split: Split) -> dict[str, list[float]]:
        """The metrics of `evaluate` of each sequence."""
        rows, device = evaluated_rows(self.dataset, split, self.config), device_of(model)
        with torch.no_grad():
            losses = [
                next_token_loss(model, self.config, "none", *rows.inputs(part, device))
                for part in shares(len(rows.tokens), EVAL_BATCH, 0, 1)
            ]
        each = torch.cat(losses).cpu().double().reshape(len(rows.tokens), -1).mean(dim=1)
        return rows.example_scores(each)


@dataclass(frozen=True)
class EvaluatedRows:
    """Sequences to evaluate a model on.

    Attributes:
        tokens: [sequences, sequence_length + 1].
        num_bytes: of the text of each sequence's targets, UTF-8; None for data that was prepared
            before they were counted.
        end: token that ends a document, if documents do not see each other.
    """

    tokens: Tokens
    num_bytes: Rows | None
    end: int | None

    def inputs(self, part: slice, device: torch.device) -> Inputs:
        """The inputs of `NextTokenLoss` for some of the sequences."""
        return text_inputs(to_device(self.tokens[part], device), self.end)

    def scores(self, loss: float) -> dict[str, float]:
        """Metrics of a mean loss over all targets, in nats per token."""
        found = {"eval_loss": loss, "perplexity": math.exp(min(loss, 700))}
        if self.num_bytes is not None:
            found["bits_per_byte"] = loss * self._bits_per_byte()
        return found

    def example_scores(self, losses: torch.Tensor) -> dict[str, list[float]]:
        """Metrics of each sequence, whose means are those of all.

        The perplexity is linear around its mean (the delta method).
        """
        mean = float(losses.mean())
        total = self.scores(mean)
        found = {
            "eval_loss": losses,
            "perplexity": total["perplexity"] * (1 + losses - mean),
            "bits_per_byte": losses * (self._bits_per_byte() if self.num_bytes is not None else 0),
        }
        return {name: found[name].tolist() for name in total}

    def _bits_per_byte(self) -> float:
        assert self.num_bytes is not None
        targets = self.tokens[:, 1:].size
        return targets / math.log(2) / float(self.num_bytes.sum())


def eval_loss(
    model: nn.Module, rows: EvaluatedRows, config: CausalLMConfig, worker: Worker | None = None
) -> float:
    """Mean negative log-likelihood of the next token, in nats, over all sequences of `rows`.

    With a worker, the ranks share the sequences and get the same result.
    """
    training, device = model.training, device_of(model)
    model.eval()
    parts, count = shares_in_step(len(rows.tokens), EVAL_BATCH, worker)
    with torch.no_grad():
        totals = [next_token_loss(model, config, "sum", *rows.inputs(p, device)) for p in parts]
    model.train(training)
    parts, totals = parts[:count], totals[:count]
    total = sum(torch.stack(totals).tolist()) if totals else 0.0  # waits for the device once
    sums = {"total": total, "count": float(sum(rows.tokens[part, 1:].size for part in parts))}
    if worker is not None:
        sums = worker.sum(sums)
    return sums["total"] / sums["count"]


def evaluated_rows(dataset: Dataset, split: Split, config: CausalLMConfig) -> EvaluatedRows:
    """At most `eval_sequences` sequences, spread evenly over the split."""
    rows, num_bytes = dataset.sequences(split), dataset.bytes(split)
    end = separator(dataset, config)
    if len(rows) <= config.eval_sequences:
        return EvaluatedRows(rows, num_bytes, end)
    chosen = spread(len(rows), config.eval_sequences)
    return EvaluatedRows(rows[chosen], None if num_bytes is None else num_bytes[chosen], end)


def separator(dataset: Dataset, config: CausalLMConfig) -> int | None:
    """The token that ends a document, if documents do not see each other; else None."""
    return dataset.end if config.packing == "documents" else None


def spread(size: int, limit: int) -> Rows:
    """At most `limit` of `size` rows, evenly over all, int64."""
    return np.linspace(0, size - 1, min(size, limit)).astype(np.int64)
