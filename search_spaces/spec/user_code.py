"""The key `user_code`: functions that read the models of your own training code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

from pydantic import Field

from search_spaces.spec.base import Section

EXTERNAL = "external"
"""The trainable of a sweep whose trials another program runs: it asks for them, and tells."""


class UserCodeSpec(Section):
    """Functions for averages and exports, each as script.py:function or package.module:function."""

    weights: str | None = Field(
        None,
        pattern=":",
        description="weights(folder): the tensors of a checkpoint, by name; default: those of its "
        "*.safetensors files.",
    )
    evaluate: str | None = Field(
        None,
        pattern=":",
        description="evaluate(weights, config, split): metrics of a model, numbers or lists with "
        "one number per example; split is selection or test.",
    )
    model: str | None = Field(
        None,
        pattern=":",
        description="model(weights, config): the torch module and an example input, for onnx and "
        "pt2.",
    )

    @property
    def named(self) -> dict[str, str]:
        """Key to function, of the keys that are given."""
        return {key: name for key, name in self if name is not None}

    def mapped(self, change: Callable[[str], str]) -> Self:
        """A copy with other names of the functions."""
        return self.model_copy(update={key: change(name) for key, name in self.named.items()})
