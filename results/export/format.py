"""The base class of export formats, and the dict of all formats."""

from __future__ import annotations

import importlib.util
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, ClassVar

from results.export.exportable import ModelSource
from search_spaces.errors import UserError, suggest

if TYPE_CHECKING:
    import torch

FORMATS: dict[str, str] = {
    "hf": "results.export.formats.hf:HuggingFace",
    "onnx": "results.export.formats.torch_export:Onnx",
    "onnx-int8": "results.export.formats.torch_export:OnnxInt8",
    "pt2": "results.export.formats.torch_export:TorchExport",
    "gguf": "results.export.formats.gguf:Gguf",
    "gguf-q8_0": "results.export.formats.gguf:GgufQ8",
    "gguf-q4_k_m": "results.export.formats.gguf:GgufQ4",
    "booster": "results.export.formats.booster:Booster",
    "safetensors": "results.export.formats.hf:Safetensors",
}
"""Name after `--to` → `module:Class`. A new format is one line here.

`gguf-q8_0` is what `--to gguf --quant q8_0` writes; it is no name after `--to`. `mlflow` is made of
`onnx`: see `results.tracking.mlflow.model_registry`.
"""

EXTRA = "tune-platform[export]"


@dataclass(frozen=True)
class Runtime:
    """A program that runs an exported copy, so that its outputs can be compared.

    Attributes:
        script: in `runtimes/` beside this file; runs the copy in a fresh process that cannot
            import this project.
        tolerance: largest allowed difference of an output, relative to the largest output (or to 1
            if that is smaller).
        comparable: maps the original's output to what the script returns.
        needs: module that not every installation has; without it the runtime is skipped.
        most_lost: of a format that rounds the weights, the largest mean divergence of the copy's
            predictions from the original's (nats); None: of one that does not.
        composes: whether it composes characters (NFC) where the tokenizer does; else its token ids
            are compared on a composed text.
        reads_tokens: whether its token ids are compared, too, if it returns any.
    """

    script: str
    tolerance: float
    comparable: Callable[[torch.Tensor], torch.Tensor] = lambda output: output
    needs: str | None = None
    most_lost: float | None = None
    reads_tokens: bool = True
    composes: bool = True

    @property
    def installed(self) -> bool:
        """Whether it can run here."""
        return self.needs is None or importlib.util.find_spec(self.needs) is not None


class Format(ABC):
    """Writes a model in one format. Stateless; made by `make_format`."""

    weights: ClassVar[tuple[str, ...]]
    """Suffixes of the files with weights; the model card lists their SHA-256."""
    runtimes: ClassVar[tuple[Runtime, ...]] = ()
    """Runtimes that verify the copy; at least one of them is always installed. None for a format
    that copies bytes and compares them itself."""
    needs: ClassVar[tuple[str, ...]] = ()
    """Modules that not every installation has."""
    extra: ClassVar[str] = EXTRA
    """What installs them."""
    rounds: ClassVar[bool] = False
    """Whether it has `write_rounded`."""

    @abstractmethod
    def write(self, model: ModelSource, folder: Path) -> None:
        """Write the model's files into an empty folder.

        Raises:
            UserError: the format cannot hold this model.
            NotImplementedError: the trainable does not support the format.
        """

    def write_rounded(self, model: ModelSource, folder: Path) -> None:
        """Write a folder of `transformers` with the weights as the copy has rounded them."""
        raise NotImplementedError(f"{type(self).__name__} rounds no weights")

    @abstractmethod
    def load_line(self, folder: Path) -> str:
        """One line of Python that loads a written folder; `{folder}` stands for its path."""

    def judges(self, folder: Path) -> tuple[Runtime, ...]:
        """Those of the runtimes that read all of what is written in a folder."""
        del folder
        return self.runtimes

    def check_installed(self, name: str) -> None:
        """Refuse a format whose packages are missing; `name` is the format's.

        Raises:
            UserError: says what to install.
        """
        missing = [m for m in self.needs if importlib.util.find_spec(m) is None]
        if missing:
            raise UserError(
                f"--to {name}: needs {', '.join(missing)}; install with: pip install '{self.extra}'"
            )


def quantized(name: str, quant: str | None) -> str:
    """The name of a format whose weights are quantized; without `quant` the same name.

    Raises:
        UserError: the format has no such form; says which formats have which.
    """
    if quant is None:
        return name
    if f"{name}-{quant}" not in FORMATS:
        forms = [" takes ".join(known.split("-")) for known in FORMATS if "-" in known]
        raise UserError(f"--quant {quant}: not for --to {name}; {', '.join(forms)}")
    return f"{name}-{quant}"


def make_format(name: str) -> Format:
    """A format by its name.

    Raises:
        UserError: there is no such format.
    """
    if name not in FORMATS:
        raise UserError(f"--to {name}: no such format{suggest(name, FORMATS)}")
    found: Format = resolve_name(FORMATS[name])()
    return found
