"""A trained model as a trainable hands it over for export."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import torch
    from onnx import ModelProto


@dataclass(frozen=True)
class TokenSample:
    """Token ids of the original, to check the tokenizer of an exported copy.

    Attributes:
        text: a text that tells tokenizers apart.
        ids: its tokens in training.
        messages: a conversation; empty without a chat template.
        composed: whether the tokenizer composes characters (NFC) first.
        prompt: its tokens; those of the text as the tokenizer begins and ends it if it is empty.
    """

    text: str
    ids: tuple[int, ...]
    messages: tuple[Mapping[str, str], ...]
    prompt: tuple[int, ...]
    composed: bool = False


class OwnFormat(Protocol):
    """A model of another library than torch."""

    def save(self, folder: Path) -> None:
        """Write it in the library's own format, with what is needed to read it."""

    def to_onnx(self, columns: int) -> ModelProto:
        """The model with one input, float32 [rows, columns], and one output."""


@dataclass(frozen=True)
class Exportable:
    """A model, and the inputs on which an exported copy is compared with it.

    Attributes:
        module: in eval mode, float32, on the CPU; takes one tensor and returns one tensor.
        examples: inputs of several shapes; each dimension of the first one is at least 2, because
            exporters treat a size of 1 as a constant.
        dynamic: dimension of the input → its name; these dimensions may have any size.
        tokens: only for a language model.
        classes: whether the output's last dimension counts classes, so that the largest value is
            the prediction.
        class_names: of that dimension, if the classes have names.
        largest: magnitude that no number of an input exceeds.
        longest: tokens of a text that the model reads.
        more_inputs: those that the tensor lacks, so that formats of one input are refused.
        own_format: what writes the model in another way than torch, if it is none of torch.
        predict: yields what it predicts for each row of a file, if it reads files itself.
    """

    module: torch.nn.Module
    input_name: str
    output_name: str
    examples: tuple[torch.Tensor, ...]
    dynamic: Mapping[int, str] = field(default_factory=lambda: {0: "batch"})
    tokens: TokenSample | None = None
    classes: bool = False
    class_names: tuple[str, ...] = ()
    largest: float = math.inf
    longest: float = math.inf
    more_inputs: str = ""
    own_format: OwnFormat | None = None
    predict: Callable[[Path], Iterator[Mapping[str, Any]]] | None = None


@dataclass(frozen=True)
class ModelSource:
    """The ways in which an export format gets a model.

    Attributes:
        weights: the folder with `model.safetensors`.
        load: returns the model; raises `NotImplementedError` when the trainable cannot.
        write_hf: writes a folder that `transformers` loads; raises the same.
        perplexities: of the weights in a folder on each sequence of a text; None: there is none.
        measured_on: the sequences, or why there are none.
    """

    weights: Path
    load: Callable[[], Exportable]
    write_hf: Callable[[Path], None]
    perplexities: Callable[[Path], list[float]] | None = None
    measured_on: str = ""

    @cached_property
    def exportable(self) -> Exportable:
        """The model, loaded once."""
        return self.load()
