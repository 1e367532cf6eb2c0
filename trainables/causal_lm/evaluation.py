"""Evaluation of a causal language model."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn

from trainables.base import Split
from trainables.causal_lm.config import CausalLMConfig
from trainables.causal_lm.data import Dataset, Tokens, prepare
from trainables.causal_lm.model import load_model, new_model, save_model
from trainables.causal_lm.objective import next_token_loss, place
from trainables.client import Rows
from trainables.common.data_sampler import shares
from trainables.common.training import weights_digest
from trainables.runtime.seeding import isolated_rng
from trainables.worker import Worker

EVAL_BATCH = 16
"""Sequences per evaluation batch: fixed, so that metrics do not depend on `batch_size`."""
DATA_KEY = "data.json"


@dataclass(frozen=True)
class EvaluatedRows:
    """Sequences to evaluate a model on.

    Attributes:
        tokens: [sequences, sequence_length + 1].
        num_bytes: of the text of each sequence's targets, UTF-8; None for data that was prepared
            before they were counted.
    """

    tokens: Tokens
    num_bytes: Rows | None

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


def evaluate(config: CausalLMConfig, weights: Path, split: Split, cache: Path) -> dict[str, float]:
    """Mean loss of weights over a split's tokens (nats), perplexity and bits per byte."""
    with _trained(config, weights, split, cache) as (model, rows):
        return rows.scores(eval_loss(model, rows.tokens, config))


def examples(
    config: CausalLMConfig, weights: Path, split: Split, cache: Path
) -> dict[str, list[float]]:
    """The metrics of `evaluate` of each sequence of a split."""
    with _trained(config, weights, split, cache) as (model, rows), torch.no_grad():
        losses = [
            next_token_loss(model, rows.tokens[part], config, "none").double()
            for part in shares(len(rows.tokens), EVAL_BATCH, 0, 1)
        ]
        return rows.example_scores(torch.cat(losses).reshape(len(rows.tokens), -1).mean(dim=1))


@contextmanager
def _trained(
    config: CausalLMConfig, weights: Path, split: Split, cache: Path
) -> Iterator[tuple[nn.Module, EvaluatedRows]]:
    """The model of a folder in evaluation mode, and the sequences of a split to evaluate it on."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    with isolated_rng(0, 0, device):
        dataset = dataset_of(config, weights, cache)
        model = place(load_model(config, dataset, weights), device).eval()
        yield model, evaluated_rows(dataset, split, config)


def initial(config: CausalLMConfig, target: Path, cache: Path) -> str:
    """Write the weights of step 0; returns their lineage."""
    dataset = prepare(config, cache)
    model = new_model(config, dataset)
    save_model(model, config, dataset, target)
    return weights_digest(model)


def digest(config: CausalLMConfig, weights: Path, cache: Path) -> str:
    """Lineage of models that start from the weights in a folder."""
    return weights_digest(load_model(config, dataset_of(config, weights, cache), weights))


def dataset_of(config: CausalLMConfig, weights: Path, cache: Path) -> Dataset:
    """The data that weights were trained on, by the key in their folder if there is one."""
    known = weights / DATA_KEY
    key = json.loads(known.read_text())["key"] if known.exists() else None
    return prepare(config, cache, key)


def eval_loss(
    model: nn.Module, rows: Tokens, config: CausalLMConfig, worker: Worker | None = None
) -> float:
    """Mean negative log-likelihood of the next token, in nats, over all sequences of `rows`.

    With a worker, the ranks share the sequences and get the same result.
    """
    rank, world_size = (worker.rank, worker.world_size) if worker else (0, 1)
    training = model.training
    model.eval()
    parts = shares(len(rows), EVAL_BATCH, rank, world_size)
    with torch.no_grad():
        totals = [next_token_loss(model, rows[part], config, "sum") for part in parts]
    model.train(training)
    total = sum(torch.stack(totals).tolist()) if totals else 0.0  # waits for the device once
    sums = {"total": total, "count": float(sum(rows[part, 1:].size for part in parts))}
    if worker is not None:
        sums = worker.sum(sums)
    return sums["total"] / sums["count"]


def evaluated_rows(dataset: Dataset, split: Split, config: CausalLMConfig) -> EvaluatedRows:
    """At most `eval_sequences` sequences, spread evenly over the split."""
    rows, limit, num_bytes = dataset.sequences(split), config.eval_sequences, dataset.bytes(split)
    if len(rows) <= limit:
        return EvaluatedRows(rows, num_bytes)
    chosen = np.linspace(0, len(rows) - 1, limit).astype(np.int64)
    return EvaluatedRows(rows[chosen], None if num_bytes is None else num_bytes[chosen])
