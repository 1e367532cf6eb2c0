"""What the scripts `trl_losses.py` share, which write the losses of trl's trainers as references.

    pip install trl==1.16.0
    python -m tests.trainables.sft.trl_losses      # rewrites trl_losses.json beside that file

trl is no dependency of the tests, as it takes seconds to import; they read its numbers.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

STEPS = 5
SETTINGS: dict[str, Any] = {
    "max_steps": STEPS,
    "eval_every": 1,
    "learning_rate": 1e-2,
    "weight_decay": 0.1,
    "warmup_fraction": 0.0,
    "schedule": "constant",
}
SMALL = {"hidden_size": 32, "num_layers": 2, "vocab_size": 300}


def written(folder: Path, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The key `data` of a configuration with these rows."""
    file = folder / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return {"source": "files", "paths": str(file)}


def talks(row: dict[str, str], **columns: str) -> dict[str, Any]:
    """A row as trl takes it: each column has one message."""
    return {
        name: [{"role": "user" if name == "prompt" else "assistant", "content": row[column]}]
        for name, column in columns.items()
    }


def arguments(config: Any, folder: Path, **others: Any) -> dict[str, Any]:
    """Those of trl's trainers, for the settings of a configuration."""
    return {
        "output_dir": str(folder / "out"),
        "max_steps": config.max_steps,
        "per_device_train_batch_size": config.batch_size,
        "learning_rate": config.learning_rate,
        "weight_decay": config.weight_decay,
        "adam_beta2": config.beta2,
        "max_grad_norm": config.grad_clip or 0.0,
        "lr_scheduler_type": "constant",
        "optim": "adamw_torch",
        "use_cpu": True,
        "bf16": False,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": [],
        "disable_tqdm": True,
        **others,
    }


def trained(trainer: Any) -> list[dict[str, float]]:
    """What a trainer logs in each step."""
    trainer.train()
    return [line for line in trainer.state.log_history if "loss" in line]


def write(file: Path, losses_of_trl: Callable[[Path], Any]) -> None:
    """Write losses with the versions that computed them."""
    import torch
    import transformers
    import trl

    with tempfile.TemporaryDirectory() as folder:
        losses = losses_of_trl(Path(folder))
    versions = {m.__name__: m.__version__ for m in (trl, transformers, torch)}
    file.write_text(json.dumps({"versions": versions, "losses": losses}, indent=1) + "\n")
