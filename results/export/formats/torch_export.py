"""Formats written by PyTorch's own exporters: ONNX and `torch.export`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from results.export.exportable import Exportable, ModelSource
from results.export.format import Format, Runtime
from results.export.quiet import quiet_exporters


class Onnx(Format):
    """`model.onnx`, by `torch.onnx.export(dynamo=True)`; weights above 2 GB lie beside it."""

    weights = (".onnx", ".data")
    runtimes = (Runtime("run_onnxruntime.py", 1e-3),)
    needs = ("onnx", "onnxscript", "onnxruntime")

    def write(self, model: ModelSource, folder: Path) -> None:
        """See the base class."""
        import torch

        source = model.exportable
        with quiet_exporters():
            program = torch.onnx.export(
                source.module,
                (source.examples[0],),
                dynamo=True,
                input_names=[source.input_name],
                output_names=[source.output_name],
                dynamic_shapes=(_dynamic_shapes(source),),
                verbose=False,
            )
            if program is None:
                raise RuntimeError("torch.onnx.export returned no program")
            program.save(str(folder / "model.onnx"))

    def load_line(self, folder: Path) -> str:
        """See the base class."""
        return 'onnxruntime.InferenceSession("{folder}/model.onnx")'


class TorchExport(Format):
    """`model.pt2`, for `torch.export.load` or AOTInductor."""

    weights = (".pt2",)
    runtimes = (Runtime("run_torch.py", 1e-4),)

    def write(self, model: ModelSource, folder: Path) -> None:
        """See the base class."""
        import torch

        source, example = model.exportable, (model.exportable.examples[0],)
        with quiet_exporters():
            program = torch.export.export(
                source.module, example, dynamic_shapes=(_dynamic_shapes(source),), strict=False
            )
            torch.export.save(program, folder / "model.pt2")

    def load_line(self, folder: Path) -> str:
        """See the base class."""
        return 'torch.export.load("{folder}/model.pt2")'


def _dynamic_shapes(source: Exportable) -> dict[int, Any]:
    import torch

    # AUTO and not a named Dim: an exporter may find that a size is bounded or tied to another,
    # and refuses a named Dim for that.
    return dict.fromkeys(source.dynamic, torch.export.Dim.AUTO)
