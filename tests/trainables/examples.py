"""The smallest configurations that still train, for tests of every trainable."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from results.averaging.soup.candidates import WEIGHTS


@dataclass(frozen=True)
class Example:
    """A tiny trial.

    Attributes:
        config: hyperparameters.
        steps: the steps at which it reports.
        learned: a metric that decreases.
        judged: metrics that `evaluate` returns too.
        weights: the file of a checkpoint that has them.
    """

    config: dict[str, Any]
    steps: tuple[int, ...]
    learned: str
    judged: tuple[str, ...]
    weights: str = WEIGHTS
    inner: str | None = None
    """Key of the hyperparameters of the model and its optimizer."""
    any_workers: dict[str, Any] = field(default_factory=dict)
    """Changes after which the result does not depend on the number of workers."""

    @property
    def same(self) -> dict[str, Any]:
        """The configuration with which the result does not depend on the number of workers."""
        return self.changed(**self.any_workers)

    def changed(self, **changes: Any) -> dict[str, Any]:
        """The configuration with other hyperparameters of the model or its optimizer."""
        if self.inner is None:
            return {**self.config, **changes}
        return {**self.config, self.inner: {**self.config[self.inner], **changes}}


DOCS = str(Path(__file__).parents[2] / "docs" / "re*.md")

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
            "data": {"max_bytes": 100_000, "selection": {"docs": DOCS}},
        },
        steps=(2, 4, 6),
        learned="eval_loss",
        judged=("eval_loss", "eval_loss/docs", "perplexity", "bits_per_byte"),
    ),
    "digits": Example(
        {"hidden_units": 16, "epochs": 3, "dropout": 0.2},
        steps=(1, 2, 3),
        learned="loss",
        judged=("accuracy", "loss"),
        any_workers={"dropout": 0.0},
    ),
    "sft": Example(
        {
            "pretrain": {
                "hidden_size": 16,
                "num_layers": 1,
                "vocab_size": 300,
                "batch_size": 4,
                "max_steps": 2,
                "data": {"max_bytes": 100_000},
            },
            "sequence_length": 256,
            "batch_size": 4,
            "max_steps": 6,
            "eval_every": 2,
            "eval_sequences": 8,
            "eval_answers": 2,
            "max_new_tokens": 3,
            "data": {"max_rows": 120, "on_bad_data": "skip"},
        },
        steps=(2, 4, 6),
        learned="eval_loss",
        judged=("exact_match", "eval_loss", "perplexity"),
    ),
    "grpo": Example(
        {
            "sft": {
                "hidden_size": 16,
                "num_layers": 1,
                "vocab_size": 270,
                "batch_size": 16,
                "max_steps": 30,
            },
            "data": {"difficulty": 1, "max_rows": 90},
            "rewards": {"exact": {"weight": 1}, "length": {"most": 1, "weight": 2}},
            "solved_by": "exact",
            "sequence_length": 48,
            "batch_size": 4,
            "group_size": 4,
            "updates_per_step": 2,
            "beta": 0.01,
            "max_new_tokens": 4,
            "learning_rate": 1e-2,
            "max_steps": 6,
            "eval_every": 2,
            "eval_sequences": 8,
            "eval_samples": 2,
        },
        steps=(2, 4, 6),
        learned="completion_length",
        judged=("pass_at_1", "pass_at_k", "eval_reward", "eval_entropy"),
    ),
    "dpo": Example(
        {
            "sft": {
                "hidden_size": 16,
                "num_layers": 1,
                "vocab_size": 270,
                "batch_size": 16,
                "max_steps": 20,
            },
            "data": {"difficulty": 1, "max_rows": 90},
            "sequence_length": 48,
            "batch_size": 4,
            "learning_rate": 3e-3,
            "max_steps": 6,
            "eval_every": 2,
            "eval_sequences": 8,
        },
        steps=(2, 4, 6),
        learned="eval_loss",
        judged=(
            *("accuracy", "ranking_accuracy", "reward_margin"),
            *("chosen_reward", "rejected_reward", "eval_loss"),
        ),
    ),
    "classifier": Example(
        {
            "hidden_size": 16,
            "num_layers": 1,
            "vocab_size": 300,
            "sequence_length": 24,
            "batch_size": 8,
            "class_weights": {"asyncio": 1.2},
            "learning_rate": 1e-2,
            "max_steps": 6,
            "eval_every": 2,
            "eval_sequences": 40,
            "data": {"max_rows": 600},
        },
        steps=(2, 4, 6),
        learned="eval_loss",
        judged=("accuracy", "f1", "auc", "eval_loss"),
    ),
    "classifier, reward": Example(
        {
            "task": "reward",
            "center_rewards_coefficient": 0.01,
            "hidden_size": 16,
            "num_layers": 1,
            "vocab_size": 270,
            "sequence_length": 48,
            "batch_size": 4,
            "max_steps": 6,
            "eval_every": 2,
            "eval_sequences": 20,
            "data": {"source": "arithmetic", "difficulty": 1, "max_rows": 90},
        },
        steps=(2, 4, 6),
        learned="eval_loss",
        judged=("accuracy", "chosen_reward", "rejected_reward", "reward_margin", "eval_loss"),
    ),
    "distill": Example(
        {
            "teacher": {"hidden_size": 32, "num_layers": 1, "vocab_size": 300, "max_steps": 8},
            "experts": {"count": 4},
            "hidden_size": 16,
            "num_layers": 1,
            "sequence_length": 16,
            "batch_size": 4,
            "max_steps": 6,
            "eval_every": 2,
            "eval_sequences": 20,
            "data": {"max_bytes": 100_000},
        },
        steps=(2, 4, 6),
        learned="eval_loss",
        judged=("eval_loss", "perplexity", "bits_per_byte"),
        any_workers={"experts": {"count": 4, "balance": 0.0}},  # it is of each worker's tokens
    ),
    "federated": Example(
        {
            "task": "digits",
            "client": {"hidden_units": 16, "batch_size": 16, "learning_rate": 1e-2, "dropout": 0.2},
            "clients": 4,
            "partition": "dirichlet",
            "participation": 0.75,
            "rounds": 3,
            "local_steps": 8,
            "server": "fedavgm",
            "server_momentum": 0.3,
        },
        steps=(1, 2, 3),
        learned="loss",
        judged=("accuracy", "loss"),
        inner="client",
        any_workers={"dropout": 0.0},
    ),
    "image_classifier": Example(
        {
            "width": 8,
            "epochs": 3,
            "batch_size": 128,
            "learning_rate": 0.1,
            "ema_decay": 0.9,
            "crop": 1,
            "cutout": 2,
            "mixup": 0.2,
            "label_smoothing": 0.1,
        },
        steps=(1, 2, 3),
        learned="loss",
        judged=("accuracy", "top5_accuracy", "loss"),
        any_workers={"norm": "group"},
    ),
}
"""By trainable; another example of one has a name with a comma."""
EXAMPLES["sft, LoRA"] = replace(
    EXAMPLES["sft"],
    config={**EXAMPLES["sft"].config, "lora": {"rank": 2, "alpha": 8, "dropout": 0.2}},
    weights="adapter_model.safetensors",
    any_workers={"lora": {"rank": 2, "alpha": 8}},
)

_BOOSTED = {
    "data": {"source": "breast_cancer"},
    "rounds": 6,
    "report_every": 2,
    "subsample": 0.7,
    "colsample_bytree": 0.5,
}
BOOSTED: dict[str, Example] = {
    name: Example(
        _BOOSTED, (2, 4, 6), "logloss", ("logloss", "accuracy", "auc", "f1"), weights=file
    )
    for name, file in (("xgboost", "model.ubj"), ("lightgbm", "model.txt"))
}
"""Sums of trees, which have no tensors and no averages."""


def trainable_of(example: str) -> str:
    """The trainable of an example, from the example's name."""
    return example.partition(",")[0]
