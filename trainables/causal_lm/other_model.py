"""Hyperparameters of a model that is trained for the trials, such as their teacher."""

from __future__ import annotations

from typing import Any

from trainables.causal_lm.config import CausalLMConfig
from trainables.config import nested_config

_OF_FOLDERS = ("model_name_or_path", "tokenizer", "lora", "communication")
"""Not of a model that is trained here."""


def config_of_other(
    key: str,
    given: dict[str, Any],
    same: dict[str, Any],
    kind: type[CausalLMConfig] = CausalLMConfig,
) -> CausalLMConfig:
    """The hyperparameters, checked.

    Args:
        key: that holds them, for messages.
        given: the hyperparameters, of class `kind`; ValueError if they are not valid.
        same: those that are the trials' own.
    """
    for name in given:
        if name in same:
            raise ValueError(f"{key}.{name}: it is that of the trials; remove it")
        if name in _OF_FOLDERS:
            raise ValueError(
                f"{key}.{name}: not of a model that is trained here; train it in a sweep of its own"
                " and give its folder"
            )
    if isinstance(data := given.get("data"), dict) and data.get("selection"):
        raise ValueError(f"{key}.data.selection: of the trials only; remove it")
    return nested_config(kind, {**given, **same}, key)
