"""Formats written by PyTorch's own exporters: ONNX and `torch.export`."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from results.export.exportable import Exportable, ModelSource
from results.export.format import Format, Runtime
from results.export.quiet import quiet_exporters
from search_spaces.errors import UserError


class Onnx(Format):
    """`model.onnx`, by `torch.onnx.export(dynamo=True)`; weights above 2 GB lie beside it."""

    weights = (".onnx", ".data")
    runtimes = (Runtime("run_onnxruntime.py", 1e-3),)
    needs = ("onnx", "onnxscript", "onnxruntime")

    def write(self, model: ModelSource, folder: Path) -> None:
        """See the base class."""
        import torch

        source = model.exportable
        if source.own_format is not None:
            made = source.own_format.to_onnx(source.examples[0].shape[1])
            (folder / "model.onnx").write_bytes(made.SerializeToString())
            return
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


_LARGEST = 2**31 - 1
"""Bytes of a file in the format of ONNX; the weights of a larger model lie beside it."""


class OnnxInt8(Onnx):
    """`model.onnx` with 8-bit weights; activations are quantized while it runs.

    Weights are unsigned: products with signed ones saturate on processors without VNNI.
    """

    runtimes = (replace(Onnx.runtimes[0], tolerance=2e-1, most_lost=5e-2),)

    def write(self, model: ModelSource, folder: Path) -> None:
        """See the base class."""
        import onnx
        from onnxruntime.quantization import QuantType, quantize_dynamic
        from onnxruntime.quantization.shape_inference import quant_pre_process

        with tempfile.TemporaryDirectory() as scratch, quiet_exporters():
            made, prepared = Path(scratch, "model.onnx"), Path(scratch, "prepared.onnx")
            super().write(model, Path(scratch))
            large = sum(file.stat().st_size for file in Path(scratch).iterdir()) > _LARGEST
            quant_pre_process(made, prepared, skip_symbolic_shape=True, save_as_external_data=large)
            whole = onnx.load(prepared)
            # The quantizer transposes weights, and would then refuse their old shapes.
            del whole.graph.value_info[:]
            quantize_dynamic(
                whole,
                folder / "model.onnx",
                weight_type=QuantType.QUInt8,
                use_external_data_format=large,
            )


class TorchExport(Format):
    """`model.pt2`, for `torch.export.load` or AOTInductor."""

    weights = (".pt2",)
    runtimes = (Runtime("run_torch.py", 1e-4),)

    def write(self, model: ModelSource, folder: Path) -> None:
        """See the base class."""
        import torch

        source = model.exportable
        example = (source.examples[0].clone(),)  # a part of a tensor would be asked for its whole
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

    if source.more_inputs:
        raise UserError(
            f"onnx, pt2 and mlflow have one input, and the model reads {source.more_inputs}, too;"
            " export it to hf"
        )
    # AUTO and not a named Dim: an exporter may find that a size is bounded or tied to another,
    # and refuses a named Dim for that.
    return dict.fromkeys(source.dynamic, torch.export.Dim.AUTO)
