"""Training without dropout, where a loss compares a model with itself at an earlier step."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torch import nn


def disable_dropout(model: nn.Module) -> None:
    """Set every probability to drop, and the noise of routers, to 0; before it is compiled.

    Models of `transformers` have them in layers, in numbers of their modules, and in their
    configuration, which is written as it was: see `restore_dropout`.
    """
    hf: Any = model
    module: Any
    for module in model.modules():
        if "Dropout" in type(module).__name__ and hasattr(module, "p"):
            module.p = 0.0
        for name, _ in list(_noise(vars(module))):
            setattr(module, name, 0.0)
    hf.dropout_before = dict(_noise(vars(hf.config)))
    for name in hf.dropout_before:
        setattr(hf.config, name, 0.0)


def restore_dropout(model: nn.Module, folder: Path) -> None:
    """Give the `config.json` that was written of a model its probabilities to drop again."""
    if before := getattr(model, "dropout_before", None):
        file = folder / "config.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), **before}, indent=2) + "\n")


def _noise(values: dict[str, Any]) -> Iterator[tuple[str, float]]:
    for name, value in values.items():
        if ("drop" in name or "jitter" in name) and isinstance(value, float) and value:
            yield name, value
