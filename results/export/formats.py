"""The formats a model is exported to: one dict from a name to how it is written and judged."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from results.export.quiet import quiet
from results.exportable import Exportable
from search_spaces.errors import UserError

EXTRA = "tune-platform[export]"


@dataclass(frozen=True)
class Model:
    """Where an export's bytes come from.

    Attributes:
        load: makes the model; `NotImplementedError` when the trainable has no such form.
        write_hf: writes what `transformers` loads into an empty folder; likewise.
    """

    load: Callable[[], Exportable]
    write_hf: Callable[[Path], None]

    @cached_property
    def exportable(self) -> Exportable:
        """The model, loaded once."""
        return self.load()


@dataclass(frozen=True)
class Runtime:
    """What judges a copy of a model.

    Attributes:
        script: in `runtimes/` beside this file; runs the copy in a fresh process which has nothing
            of ours.
        tolerance: largest difference of an output, as a part of the largest output (at least 1).
    """

    script: str
    tolerance: float


@dataclass(frozen=True)
class Format:
    """One target.

    Attributes:
        write: puts the files of the model into a folder.
        runtime: judges what was written.
        needs: modules of `tune-platform[export]`.
        how: one line of Python that loads it; `{folder}` stands for the folder.
    """

    write: Callable[[Model, Path], None]
    runtime: Runtime
    how: str
    needs: tuple[str, ...] = ()

    def check_installed(self, name: str) -> None:
        """Refuse a format whose packages are not there.

        Raises:
            UserError: says what to install.
        """
        missing = [m for m in self.needs if importlib.util.find_spec(m) is None]
        if missing:
            raise UserError(
                f"--to {name}: needs {', '.join(missing)}; install with: pip install '{EXTRA}'"
            )


def write_hf(model: Model, folder: Path) -> None:
    """Safetensors, configuration, tokenizer and generation settings, as `transformers` has them."""
    model.write_hf(folder)


def write_onnx(model: Model, folder: Path) -> None:
    """`model.onnx` by `torch.onnx.export(dynamo=True)`; weights over 2 GB go beside it."""
    import torch

    made = model.exportable
    with quiet():
        program = torch.onnx.export(
            made.module,
            (made.examples[0],),
            dynamo=True,
            input_names=[made.input_name],
            output_names=[made.output_name],
            dynamic_shapes=(_dynamic(made),),
            verbose=False,
        )
        if program is None:
            raise RuntimeError("torch.onnx.export gave no program")
        program.save(str(folder / "model.onnx"))


def write_pt2(model: Model, folder: Path) -> None:
    """`model.pt2` by `torch.export`, for `torch.export.load` or AOTInductor."""
    import torch

    made = model.exportable
    with quiet():
        program = torch.export.export(
            made.module, (made.examples[0],), dynamic_shapes=(_dynamic(made),), strict=False
        )
        torch.export.save(program, folder / "model.pt2")


def _dynamic(made: Exportable) -> dict[int, Any]:
    import torch

    # AUTO, where a named Dim would refuse: an exporter may find a size to be bounded or tied.
    return dict.fromkeys(made.dynamic, torch.export.Dim.AUTO)


def _write_gguf(model: Model, folder: Path) -> None:
    from results.export.gguf import write_gguf

    write_gguf(model, folder)


FORMATS: dict[str, Format] = {
    "hf": Format(
        write_hf,
        Runtime("run_transformers.py", 1e-4),
        'AutoModelForCausalLM.from_pretrained("{folder}")',
    ),
    "onnx": Format(
        write_onnx,
        Runtime("run_onnxruntime.py", 1e-3),
        'onnxruntime.InferenceSession("{folder}/model.onnx")',
        ("onnx", "onnxscript", "onnxruntime"),
    ),
    "pt2": Format(
        write_pt2, Runtime("run_torch.py", 1e-4), 'torch.export.load("{folder}/model.pt2")'
    ),
    "gguf": Format(
        _write_gguf,
        Runtime("run_transformers.py", 1e-4),
        'AutoModelForCausalLM.from_pretrained("{folder}", gguf_file="model.gguf")',
        ("gguf", "accelerate"),
    ),
}
"""Name after `--to` → format. `mlflow` is made of `onnx`, see `results.tracking.registry`."""
