"""Which sequences of a split a language model is evaluated on, and its loss on them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np
import torch
from torch import nn

from trainables.base import Split
from trainables.causal_lm.config import CausalLMConfig
from trainables.causal_lm.model.objective import Inputs, next_token_loss, text_inputs, to_device
from trainables.client import Rows
from trainables.data.text.dataset import Dataset, Tokens
from trainables.parallel.fsdp import device_of
from trainables.training.data_sampler import shares_in_step
from trainables.worker import Worker

EVAL_BATCH = 16
"""Sequences per evaluation batch: fixed, so that metrics do not depend on `batch_size`."""


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
        found = {"eval_loss": losses, "perplexity": perplexities(losses)}
        if self.num_bytes is not None:
            found["bits_per_byte"] = losses * self._bits_per_byte()
        return {name: values.tolist() for name, values in found.items()}

    def _bits_per_byte(self) -> float:
        assert self.num_bytes is not None
        targets = self.tokens[:, 1:].size
        return targets / math.log(2) / float(self.num_bytes.sum())


def perplexities(losses: torch.Tensor) -> torch.Tensor:
    """The perplexity of each sample, linear around that of the mean loss (the delta method)."""
    mean = float(losses.mean())
    return math.exp(min(mean, 700)) * (1 + losses - mean)


Samples = Mapping[str, Sequence[float]]
"""Values of metrics, of each sample or of all of them."""


def means(samples: Samples) -> dict[str, float]:
    """The metrics of all samples."""
    return {name: fmean(values) for name, values in samples.items()}


def of_sets(
    samples: Callable[[Any], Samples], dataset: Dataset, weights: Mapping[str, float]
) -> dict[str, list[float]]:
    """The metrics that `samples` gives for a data set, and the losses of its named sets; with
    weights, the weighted means of the sets' metrics in place of those of the data set."""
    each = {name: samples(one) for name, one in dataset.sets.items()}
    named = {f"eval_loss/{name}": list(one["eval_loss"]) for name, one in each.items()}
    if not weights:
        return {**{name: list(values) for name, values in samples(dataset).items()}, **named}
    size = sum(len(losses) for losses in named.values())
    found = {}
    for metric in next(iter(each.values())):
        found[metric] = [
            value * weight * size / len(each[name][metric])
            for name, weight in weights.items()
            for value in each[name][metric]
        ]
    found["perplexity"] = perplexities(
        torch.tensor(found["eval_loss"], dtype=torch.double)
    ).tolist()
    return {**found, **named}


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
