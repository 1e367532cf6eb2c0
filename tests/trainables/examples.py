"""The smallest configurations that still train, for tests of every trainable."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Example:
    """A tiny trial.

    Attributes:
        config: hyperparameters.
        steps: at which it reports.
        learned: a metric, which gets smaller.
        judged: metrics that `evaluate` gives too.
    """

    config: dict[str, Any]
    steps: tuple[int, ...]
    learned: str
    judged: tuple[str, ...]


EXAMPLES: dict[str, Example] = {
    "causal_lm": Example(
        {
            "hidden_size": 16,
            "num_layers": 1,
            "vocab_size": 300,
            "sequence_length": 16,
            "batch_size": 4,
            "max_steps": 6,
            "eval_every": 2,
            "eval_sequences": 20,
            "data": {"max_bytes": 100_000},
        },
        steps=(2, 4, 6),
        learned="eval_loss",
        judged=("eval_loss",),
    ),
    "digits": Example(
        {"hidden_units": 16, "epochs": 3, "dropout": 0.2},
        steps=(1, 2, 3),
        learned="loss",
        judged=("accuracy", "loss"),
    ),
}
