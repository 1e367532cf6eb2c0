"""What llama.cpp calls the parts of a `transformers` model, and what it cannot express.

Names come from the tensor maps of the package `gguf`; settings, the order of the rotary pairs and
the fixed settings of each architecture follow llama.cpp's converter (`conversion/`) and its graphs
(`src/models/`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from search_spaces.errors import UserError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Tensor = npt.NDArray[np.float32]

ROPE_FREQS = "rope_freqs.weight"
"""Divisors of the rotary frequencies."""
_EXPERT = {"w1": "ffn_gate_exps", "w2": "ffn_down_exps", "w3": "ffn_up_exps"}


@dataclass(frozen=True)
class Architecture:
    """An architecture of llama.cpp, and the settings of a model that it takes as given."""

    name: str
    fixed: Mapping[str, Any]


_SILU = {"hidden_act": "silu"}
_LLAMA = Architecture("llama", _SILU)
ARCHITECTURES = {
    "LlamaForCausalLM": _LLAMA,
    "MistralForCausalLM": _LLAMA,
    "MixtralForCausalLM": _LLAMA,
    "Qwen2ForCausalLM": Architecture("qwen2", _SILU),
    "Qwen3ForCausalLM": Architecture("qwen3", {**_SILU, "attention_bias": False}),
    "Gemma3ForCausalLM": Architecture(
        "gemma3",
        {
            "hidden_activation": "gelu_pytorch_tanh",
            "attention_bias": False,
            "attn_logit_softcapping": None,
            "final_logit_softcapping": None,
            "use_bidirectional_attention": False,
        },
    ),
}

_POSITIONS = (
    *("rope_type", "rope_theta", "factor", "original_max_position_embeddings"),
    *("low_freq_factor", "high_freq_factor"),
)
_USUAL = {"partial_rotary_factor": 1, "beta_fast": 32, "beta_slow": 1, "truncate": True}
"""Other settings of rotary positions, as llama.cpp has them if nothing is said."""


@dataclass(frozen=True)
class GgufModel:
    """A model in a folder of `transformers`, as llama.cpp describes it."""

    folder: Path
    architecture: Architecture
    config: dict[str, Any]

    @property
    def head_width(self) -> int:
        """Numbers of a head's query."""
        c = self.config
        return int(c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"])

    @property
    def rope(self) -> dict[str, Any]:
        """Rotary positions of the layers that see all tokens."""
        found = self.config["rope_parameters"]
        layers: dict[str, Any] = found.get("full_attention", found)
        return layers

    @property
    def output(self) -> str:
        """The tensor that gives the logits."""
        return "token_embd.weight" if self.config["tie_word_embeddings"] else "output.weight"

    def add_settings(self, writer: Any) -> None:
        """Write the settings to a `gguf.GGUFWriter`."""
        c = self.config
        writer.add_context_length(c["max_position_embeddings"])
        writer.add_embedding_length(c["hidden_size"])
        writer.add_block_count(c["num_hidden_layers"])
        writer.add_feed_forward_length(c["intermediate_size"])
        writer.add_head_count(c["num_attention_heads"])
        writer.add_head_count_kv(self._key_heads)
        writer.add_key_length(self.head_width)
        writer.add_value_length(self.head_width)
        writer.add_layer_norm_rms_eps(c["rms_norm_eps"])
        writer.add_vocab_size(c["vocab_size"])
        if self.architecture is _LLAMA:
            writer.add_rope_dimension_count(self.head_width)
        if experts := c.get("num_local_experts"):
            writer.add_expert_count(experts)
            writer.add_expert_used_count(c["num_experts_per_tok"])
        if self.architecture.name == "gemma3":
            writer.add_sliding_window(c["sliding_window"])
            local = c["rope_parameters"]["sliding_attention"]
            writer.add_rope_freq_base_swa(local["rope_theta"])
        self._add_positions(writer)

    @property
    def _key_heads(self) -> int:
        return int(self.config.get("num_key_value_heads") or self.config["num_attention_heads"])

    def _add_positions(self, writer: Any) -> None:
        from gguf import RopeScalingType

        writer.add_rope_freq_base(self.rope["rope_theta"])
        kind = self.rope["rope_type"]
        if kind in ("linear", "yarn"):
            writer.add_rope_scaling_type(RopeScalingType(kind))
            writer.add_rope_scaling_factor(self.rope["factor"])
        if kind == "yarn":
            writer.add_rope_scaling_orig_ctx_len(self.rope["original_max_position_embeddings"])

    @property
    def files(self) -> list[Path]:
        """Of the weights."""
        return sorted(self.folder.glob("model*.safetensors"))

    def parts(self, file: Path) -> Iterator[tuple[str, str, Tensor]]:
        """Name, name in llama.cpp (one of all experts of a layer) and content of each tensor."""
        import gguf
        from safetensors.numpy import load_file

        kind = next(k for k, v in gguf.MODEL_ARCH_NAMES.items() if v == self.architecture.name)
        names = gguf.get_tensor_name_map(kind, self.config["num_hidden_layers"])
        for name, tensor in load_file(file).items():
            if ".experts." in name:
                _, _, block, _, _, _, part, _ = name.split(".")
                yield name, f"blk.{block}.{_EXPERT[part]}.weight", tensor
            elif (known := names.get_name(name, (".weight", ".bias"))) is None:
                raise UserError(f"--to gguf: llama.cpp has no tensor {name}")
            else:
                yield name, known, tensor

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Names and tensors, float32, in llama.cpp's order of the rotary pairs."""
        import numpy as np

        experts: dict[str, dict[int, Tensor]] = {}
        for file in self.files:
            for name, known, tensor in self.parts(file):
                if ".experts." in name:
                    experts.setdefault(known, {})[int(name.split(".")[5])] = tensor
                else:
                    yield known, self._converted(known, tensor)
        for stacked, parts in experts.items():
            yield stacked, np.stack([parts[i] for i in range(len(parts))])
        if self.rope["rope_type"] == "llama3":
            yield ROPE_FREQS, self._frequency_divisors()

    def _converted(self, name: str, tensor: Tensor) -> Tensor:
        part = name.split(".")[-2]
        if self.architecture is _LLAMA and part in ("attn_q", "attn_k"):
            # Interleaves the rotary halves; transformers stores them apart.
            heads = self.config["num_attention_heads"] if part == "attn_q" else self._key_heads
            halves = tensor.reshape(heads, 2, tensor.shape[0] // heads // 2, *tensor.shape[1:])
            return halves.swapaxes(1, 2).reshape(tensor.shape)
        if self.architecture.name == "gemma3" and part.endswith("norm"):
            return tensor + 1  # transformers adds 1 when it multiplies
        return tensor

    def _frequency_divisors(self) -> Tensor:
        """By which llama.cpp divides the unscaled rotary frequencies, float32 [head width / 2]."""
        import numpy as np
        from transformers import AutoConfig
        from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

        scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](AutoConfig.from_pretrained(self.folder), "cpu")
        exponents = np.arange(0, self.head_width, 2) / self.head_width
        plain = self.rope["rope_theta"] ** -exponents
        divisors: Tensor = (plain / scaled.double().numpy()).astype(np.float32)
        return divisors


def read_model(folder: Path) -> GgufModel:
    """The model in a folder.

    Raises:
        UserError: llama.cpp has no such model.
    """
    from transformers import AutoConfig

    made = json.loads((folder / "config.json").read_text()).get("architectures") or ["no class"]
    if (architecture := ARCHITECTURES.get(made[0])) is None:
        raise UserError(f"--to gguf: supports {', '.join(ARCHITECTURES)}, not {made[0]}")
    config = AutoConfig.from_pretrained(folder).to_dict()
    model = GgufModel(folder, architecture, config)
    if found := next(_inexpressible(model), None):
        raise UserError(f"--to gguf: llama.cpp has no {made[0]} with {found}")
    return model


def _inexpressible(model: GgufModel) -> Iterator[str]:
    config, rope = model.config, model.rope
    for name, value in model.architecture.fixed.items():
        if config.get(name, value) != value:
            yield f"{name}: {config[name]}"
    kinds = {"llama": ("llama3",), "gemma3": ()}.get(model.architecture.name, ("yarn",))
    if rope["rope_type"] not in ("default", "linear", *kinds):
        yield f"rope_type: {rope['rope_type']}"
    for name, value in rope.items():
        if name not in _POSITIONS and value not in (None, _USUAL.get(name)):
            yield f"{name}: {value}"
    if model.architecture.name == "gemma3":
        yield from _other_gemma(config)
    elif (window := config.get("sliding_window")) and window < config["max_position_embeddings"]:
        yield f"sliding_window: {window}, shorter than max_position_embeddings"


def _other_gemma(config: dict[str, Any]) -> Iterator[str]:
    """llama.cpp scales by the width of a head, and every sixth layer sees all tokens."""
    if (scalar := config["query_pre_attn_scalar"]) != config["head_dim"]:
        yield f"query_pre_attn_scalar: {scalar}, not head_dim"
    kinds = ("full_attention", "sliding_attention")
    if config["layer_types"] != [kinds[i % 6 != 5] for i in range(config["num_hidden_layers"])]:
        yield f"layer_types: {config['layer_types']}"
    if (local := config["rope_parameters"]["sliding_attention"])["rope_type"] != "default":
        yield f"rope_type: {local['rope_type']} of layers with a sliding window"
