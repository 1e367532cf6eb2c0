"""GGUF, the format of llama.cpp, for the one architecture that is trained here: Llama.

Names, the order of the rotary pairs and the tokenizer's fields follow llama.cpp's own converter
(`convert_hf_to_gguf.py`); weights stay float32.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from results.export.exportable import ModelSource
from results.export.format import Format, Runtime
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


class Gguf(Format):
    """`model.gguf`, written from the `transformers` folder of the model."""

    weights = (".gguf",)
    runtimes = (TRANSFORMERS, Runtime("run_llama_cpp.py", 1e-3, last_token, needs="xllamacpp"))
    needs = ("gguf", "accelerate")

    def write(self, model: ModelSource, folder: Path) -> None:
        """See the base class.

        Raises:
            UserError: the model is not a Llama, or its tokenizer is not byte-level BPE.
        """
        with tempfile.TemporaryDirectory() as scratch:
            model.write_hf(Path(scratch))
            _convert(Path(scratch), folder / "model.gguf")

    def load_line(self, folder: Path) -> str:
        """See the base class."""
        return 'AutoModelForCausalLM.from_pretrained("{folder}", gguf_file="model.gguf")'


def _convert(hf: Path, target: Path) -> None:
    from gguf import GGUFWriter
    from safetensors.numpy import load_file

    config = json.loads((hf / "config.json").read_text())
    if config.get("architectures") != ["LlamaForCausalLM"]:
        found = ", ".join(config.get("architectures") or ["an unknown architecture"])
        raise UserError(f"--to gguf: supports LlamaForCausalLM, not {found}")
    writer = GGUFWriter(target, "llama")
    try:
        _settings(writer, config)
        _vocabulary(writer, json.loads((hf / "tokenizer.json").read_text()), config)
        for name, tensor in load_file(hf / "model.safetensors").items():
            writer.add_tensor(_renamed(name), _reordered(name, tensor, config))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
    finally:
        writer.close()


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
    writer.add_rope_dimension_count(config.get("head_dim") or config["hidden_size"] // heads)
    writer.add_rope_freq_base(rope.get("rope_theta", 10000.0))
    writer.add_vocab_size(config["vocab_size"])
    writer.add_file_type(0)  # float32


def _vocabulary(writer: Any, tokenizer: dict[str, Any], config: dict[str, Any]) -> None:
    from gguf import TokenType

    bpe = tokenizer["model"]
    if bpe["type"] != "BPE":
        raise UserError(f"--to gguf: supports byte-level BPE tokenizers, not {bpe['type']}")
    by_id = {i: token for token, i in bpe["vocab"].items()}
    special = {t["id"]: t["content"] for t in tokenizer["added_tokens"]}
    by_id.update(special)
    tokens = [by_id.get(i, f"[PAD{i}]") for i in range(config["vocab_size"])]
    kinds = [TokenType.CONTROL if i in special else TokenType.NORMAL for i in range(len(tokens))]
    merges = [m if isinstance(m, str) else " ".join(m) for m in bpe["merges"]]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges(merges)
    end = config.get("eos_token_id")
    if isinstance(end, int):
        writer.add_eos_token_id(end)
    writer.add_add_bos_token(False)


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
