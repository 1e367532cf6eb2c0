"""GGUF, the format of llama.cpp, for the language models in `gguf_models`.

Weights stay float32, or become blocks of 8-bit (Q8_0) or about 4-bit integers (Q4_K_M).
"""

from __future__ import annotations

import ctypes
import tempfile
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from results.export.exportable import ModelSource
from results.export.format import Format, Runtime
from results.export.formats.gguf_models import ROPE_FREQS, GgufModel, read_model
from results.export.formats.gguf_tokenizer import tokenizer_fields
from results.export.formats.hf import TRANSFORMERS
from search_spaces.errors import UserError

if TYPE_CHECKING:
    import numpy.typing as npt
    import torch
    from gguf import GGMLQuantizationType

    from results.export.formats.gguf_models import Tensor


def last_token(logits: torch.Tensor) -> torch.Tensor:
    """Log-probabilities [sequences, vocabulary] of the last token, given those before it."""
    return logits[:, -2].double().log_softmax(-1)


LLAMA_CPP = Runtime("run_llama_cpp.py", 1e-3, last_token, needs="xllamacpp", composes=False)
_BLOCK_SIZE = 32
"""Weights of a row that share a scale in Q8_0 and Q5_0."""
_SUPER_BLOCK_SIZE = 256
"""Of a row that share scales in Q4_K and Q6_K."""


class Gguf(Format):
    """`model.gguf`, written from the `transformers` folder of the model."""

    weights = (".gguf",)
    # The reader of transformers does not know all pre-tokenizers of llama.cpp.
    runtimes: ClassVar[tuple[Runtime, ...]] = (replace(TRANSFORMERS, reads_tokens=False), LLAMA_CPP)
    needs: ClassVar[tuple[str, ...]] = ("gguf", "accelerate")
    file_type: ClassVar[str] = "ALL_F32"

    def judges(self, folder: Path) -> tuple[Runtime, ...]:
        """llama.cpp alone of what the reader of transformers reads otherwise than it.

        Raises:
            UserError: that is so, and llama.cpp is not installed.
        """
        if _is_plain_llama(folder / "model.gguf"):
            return self.runtimes
        if not self.runtimes[-1].installed:
            raise UserError(
                "--to gguf: only llama.cpp can verify this model; install with: "
                "pip install 'tune-platform[llama-cpp]', or export with --no-verify"
            )
        # llama.cpp reads GELU, which Gemma has, from a table in half precision.
        lost = 5e-3 if _architecture(folder / "model.gguf") == "gemma3" else 0.0
        judge = self.runtimes[-1]
        return (replace(judge, tolerance=max(judge.tolerance, lost)),)

    def write(self, model: ModelSource, folder: Path) -> None:
        """See the base class.

        Raises:
            UserError: llama.cpp does not know the model or what it has, or its rows cannot be
                quantized.
        """
        with tempfile.TemporaryDirectory() as scratch:
            model.write_hf(Path(scratch))
            _convert(Path(scratch), folder / "model.gguf", self.file_type)

    def write_rounded(self, model: ModelSource, folder: Path) -> None:
        """See the base class."""
        from gguf import quants
        from safetensors.numpy import save_file

        model.write_hf(folder)
        found = read_model(folder)
        for file in found.files:
            rounded = {}
            for name, known, tensor in found.parts(file):  # blocks are of a row, wherever that is
                kind = _kind(known, tensor, found, self.file_type)
                rounded[name] = quants.dequantize(_quantized(tensor, kind), kind)
            save_file(rounded, file, metadata={"format": "pt"})

    def load_line(self, folder: Path) -> str:
        """See the base class."""
        if _is_plain_llama(folder / "model.gguf"):
            return 'AutoModelForCausalLM.from_pretrained("{folder}", gguf_file="model.gguf")'
        return 'llama_cpp.Llama("{folder}/model.gguf")'


class GgufQ8(Gguf):
    """`model.gguf` with matrices of 8-bit integers, a scale for every 32; vectors stay float32.

    llama.cpp also rounds the activations to 8 bits before it multiplies.
    """

    rounds = True
    runtimes = tuple(replace(one, tolerance=1e-1, most_lost=2e-2) for one in Gguf.runtimes)
    file_type = "MOSTLY_Q8_0"


class GgufQ4(Gguf):
    """`model.gguf` with the mix of 4- and 6-bit integers that llama.cpp calls Q4_K_M.

    ggml quantizes, which `xllamacpp` contains; no other package on PyPI does.
    """

    rounds = True
    runtimes = tuple(replace(one, tolerance=5e-1, most_lost=2e-1) for one in Gguf.runtimes)
    needs = (*Gguf.needs, "xllamacpp")
    extra = "tune-platform[export,llama-cpp]"
    file_type = "MOSTLY_Q4_K_M"


def _architecture(file: Path) -> str:
    from gguf import GGUFReader

    return str(GGUFReader(file).fields["general.architecture"].contents())


def _is_plain_llama(file: Path) -> bool:
    """Whether the reader of transformers understands all of a file."""
    from gguf import GGUFReader

    reader = GGUFReader(file)
    kind = reader.fields["general.architecture"].contents()
    other = {"llama.expert_count", "llama.rope.scaling.type"} & reader.fields.keys()
    unread = [t.name for t in reader.tensors if t.name == ROPE_FREQS or t.name.endswith(".bias")]
    return kind == "llama" and not other and not unread


def _convert(hf: Path, target: Path, file_type: str) -> None:
    from gguf import GGUFWriter, LlamaFileType

    model = read_model(hf)
    if file_type != "ALL_F32" and (size := model.config["hidden_size"]) % _BLOCK_SIZE:
        quant = file_type.removeprefix("MOSTLY_").lower()
        raise UserError(f"--quant {quant}: needs a hidden_size of a multiple of 32, not {size}")
    fields = tokenizer_fields(hf, model.config["vocab_size"])
    writer = GGUFWriter(target, model.architecture.name)
    try:
        model.add_settings(writer)
        writer.add_file_type(LlamaFileType[file_type])
        for name, value in fields.items():
            getattr(writer, f"add_{name}")(value)
        for name, tensor in model.tensors():
            kind = _kind(name, tensor, model, file_type)
            writer.add_tensor(name, _quantized(tensor, kind), raw_dtype=kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
    finally:
        writer.close()


def _kind(name: str, tensor: Tensor, model: GgufModel, file_type: str) -> GGMLQuantizationType:
    """The type of a tensor's weights, as llama.cpp's `llama-quantize` chooses it."""
    from gguf import GGMLQuantizationType as Kind

    width = tensor.shape[-1]
    if file_type == "ALL_F32" or tensor.ndim == 1 or width % _BLOCK_SIZE or "gate_inp" in name:
        return Kind.F32
    if file_type == "MOSTLY_Q8_0":
        return Kind.Q8_0
    is_finer = name == model.output or _is_finer(name, model.config["num_hidden_layers"])
    if width % _SUPER_BLOCK_SIZE:
        return Kind.Q8_0 if is_finer else Kind.Q5_0
    return Kind.Q6_K if is_finer else Kind.Q4_K


def _is_finer(name: str, blocks: int) -> bool:
    """Whether Q4_K_M keeps more bits: in the first and last eighth, and a third of the others."""
    _, block, part, *_ = [*name.split("."), "", ""]
    if part not in ("attn_v", "ffn_down", "ffn_down_exps"):
        return False
    i, eighth = int(block), blocks // 8
    return i < eighth or i >= 7 * blocks // 8 or (i - eighth) % 3 == 2


def _quantized(tensor: Tensor, kind: GGMLQuantizationType) -> npt.NDArray[Any]:
    """The bytes of a tensor's blocks: by the package `gguf`; by ggml of those it cannot write."""
    from gguf import GGMLQuantizationType, quants

    if kind not in (GGMLQuantizationType.Q4_K, GGMLQuantizationType.Q6_K):
        return quants.quantize(tensor, kind)
    import numpy as np

    tensor, width = np.ascontiguousarray(tensor, np.float32), tensor.shape[-1]
    found = np.empty(quants.quant_shape_to_byte_shape(tensor.shape, kind), np.uint8)
    library = import_module("xllamacpp.xllamacpp").__file__
    if (quantize := getattr(ctypes.CDLL(library), "ggml_quantize_chunk", None)) is None:
        raise UserError(f"--quant q4_k_m: {library} has no ggml_quantize_chunk")
    quantize.restype, number = ctypes.c_size_t, ctypes.c_int64
    pointers = tensor.ctypes.data_as(ctypes.c_void_p), found.ctypes.data_as(ctypes.c_void_p)
    sizes = number(0), number(tensor.size // width), number(width)
    written = quantize(ctypes.c_int(kind), *pointers, *sizes, ctypes.c_void_p(None))
    if written != found.nbytes:
        raise UserError(f"--quant q4_k_m: ggml wrote {written} bytes, not {found.nbytes}")
    return found
