"""GGUF, the format of llama.cpp, for the one architecture that is trained here: Llama.

Names, the order of the rotary pairs and the tokenizer's fields follow llama.cpp's own converter
(`convert_hf_to_gguf.py`); weights stay float32, or become 8-bit blocks (Q8_0).
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from results.export.exportable import ModelSource
from results.export.format import Format, Runtime
from results.export.formats.gguf_tokenizer import tokenizer_fields
from results.export.formats.hf import TRANSFORMERS
from search_spaces.errors import UserError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import torch

_BLOCK = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}
_OUTSIDE = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def last_token(logits: torch.Tensor) -> torch.Tensor:
    """Log-probabilities [sequences, vocabulary] of the last token, given those before it."""
    return logits[:, -2].double().log_softmax(-1)


LLAMA_CPP = Runtime("run_llama_cpp.py", 1e-3, last_token, needs="xllamacpp")
_BLOCK_SIZE = 32
"""Weights of a row that share a scale in Q8_0."""


class Gguf(Format):
    """`model.gguf`, written from the `transformers` folder of the model."""

    weights = (".gguf",)
    # The reader of transformers does not know all pre-tokenizers of llama.cpp.
    runtimes: ClassVar[tuple[Runtime, ...]] = (replace(TRANSFORMERS, reads_tokens=False), LLAMA_CPP)
    needs = ("gguf", "accelerate")
    quantize: ClassVar[bool] = False

    def write(self, model: ModelSource, folder: Path) -> None:
        """See the base class.

        Raises:
            UserError: the model is not a Llama, llama.cpp does not know what it has, or its rows
                cannot be quantized.
        """
        with tempfile.TemporaryDirectory() as scratch:
            model.write_hf(Path(scratch))
            _convert(Path(scratch), folder / "model.gguf", self.quantize)

    def load_line(self, folder: Path) -> str:
        """See the base class."""
        return 'AutoModelForCausalLM.from_pretrained("{folder}", gguf_file="model.gguf")'


class GgufQ8(Gguf):
    """`model.gguf` with matrices of 8-bit integers, a scale for every 32; vectors stay float32.

    llama.cpp also rounds the activations to 8 bits before it multiplies.
    """

    runtimes = tuple(replace(one, tolerance=1e-1, most_lost=2e-2) for one in Gguf.runtimes)
    quantize = True


def _convert(hf: Path, target: Path, quantize: bool) -> None:
    from gguf import GGUFWriter, LlamaFileType
    from safetensors.numpy import load_file

    config = json.loads((hf / "config.json").read_text())
    if found := next(_inexpressible(config), None):
        raise UserError(f"--to gguf: supports LlamaForCausalLM, not {found}")
    if quantize and config["hidden_size"] % _BLOCK_SIZE:
        size = config["hidden_size"]
        raise UserError(f"--quant q8_0: needs a hidden_size of a multiple of 32, not {size}")
    fields = tokenizer_fields(hf, config["vocab_size"])
    writer = GGUFWriter(target, "llama")
    try:
        _settings(writer, config)
        writer.add_file_type(LlamaFileType.MOSTLY_Q8_0 if quantize else LlamaFileType.ALL_F32)
        for name, value in fields.items():
            getattr(writer, f"add_{name}")(value)
        for name, tensor in load_file(hf / "model.safetensors").items():
            _add(writer, _renamed(name), _reordered(name, tensor, config), quantize)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
    finally:
        writer.close()


def _inexpressible(config: dict[str, Any]) -> Iterator[str]:
    """What of a configuration the architecture `llama` of llama.cpp, as written here, has not."""
    if config.get("architectures") != ["LlamaForCausalLM"]:
        yield ", ".join(config.get("architectures") or ["an unknown architecture"])
        return
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if (kind := rope.get("rope_type") or rope.get("type") or "default") != "default":
        yield f"with scaled rotary positions (rope_type: {kind})"
    if (part := rope.get("partial_rotary_factor", 1)) != 1:
        yield f"with partial_rotary_factor: {part}"
    width = config["hidden_size"] / config["num_attention_heads"]
    if (own := config.get("head_dim") or width) != width:
        yield f"with head_dim: {own}; hidden_size / num_attention_heads is {width:g}"
    if (act := config.get("hidden_act", "silu")) != "silu":
        yield f"with hidden_act: {act}"


def _settings(writer: Any, config: dict[str, Any]) -> None:
    heads = config["num_attention_heads"]
    rope = config.get("rope_parameters") or config
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(config.get("num_key_value_heads") or heads)
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_dimension_count(config["hidden_size"] // heads)
    writer.add_rope_freq_base(rope.get("rope_theta", 10000.0))
    writer.add_vocab_size(config["vocab_size"])


def _add(writer: Any, name: str, tensor: npt.NDArray[np.float32], quantize: bool) -> None:
    """Add a tensor; a row that is no multiple of the block size stays float32, as in llama.cpp."""
    from gguf import GGMLQuantizationType, quants

    if quantize and tensor.ndim > 1 and tensor.shape[-1] % _BLOCK_SIZE == 0:
        kind = GGMLQuantizationType.Q8_0
        writer.add_tensor(name, quants.quantize(tensor, kind), raw_dtype=kind)
    else:
        writer.add_tensor(name, tensor)


def _renamed(name: str) -> str:
    stem, _, kind = name.rpartition(".")
    if stem in _OUTSIDE:
        return f"{_OUTSIDE[stem]}.{kind}"
    _, _, block, part = stem.split(".", 3)
    return f"blk.{block}.{_BLOCK[part]}.{kind}"


def _reordered(
    name: str, tensor: npt.NDArray[np.float32], config: dict[str, Any]
) -> npt.NDArray[np.float32]:
    """Interleave the rotary halves, as llama.cpp expects; `transformers` stores them apart."""
    heads = config["num_attention_heads"]
    if "q_proj" in name:
        pairs = heads
    elif "k_proj" in name:
        pairs = config.get("num_key_value_heads") or heads
    else:
        return tensor
    rows = tensor.shape[0] // pairs // 2
    split = tensor.reshape(pairs, 2, rows, *tensor.shape[1:])
    return split.swapaxes(1, 2).reshape(tensor.shape)
