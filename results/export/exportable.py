"""A trained model in the form in which other runtimes take it, as a trainable hands it over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class TokenSample:
    """Text and the token ids that it had in training, by which an exported tokenizer is judged."""

    text: str
    ids: tuple[int, ...]


@dataclass(frozen=True)
class Exportable:
    """A model, and inputs by which an exported copy of it is judged.

    Attributes:
        module: in eval mode, float32, on the CPU; takes one tensor, gives one tensor.
        input_name: what the input is called in the exported model.
        output_name: likewise the output.
        examples: inputs of several shapes; each dimension of the first is at least 2, since
            exporters take a size of 1 for a constant.
        dynamic: dimension of the input → its name; these may have any size.
        tokens: of a language model.
        classes: whether the output's last dimension counts classes, of which the largest is meant.
    """

    module: torch.nn.Module
    input_name: str
    output_name: str
    examples: tuple[torch.Tensor, ...]
    dynamic: Mapping[int, str] = field(default_factory=lambda: {0: "batch"})
    tokens: TokenSample | None = None
    classes: bool = False
