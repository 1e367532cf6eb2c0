"""A model that is compared with itself has no dropout, wherever its class has the numbers."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from pydantic import ValidationError

from tests.trainables.examples import EXAMPLES
from trainables.causal_lm.model.dropout import disable_dropout, restore_dropout
from trainables.dpo.config import DPOConfig

SIZES = {"vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
RATES = (
    "attention_dropout",
    "attn_pdrop",
    "embd_pdrop",
    "resid_pdrop",
    "dropout",
    "activation_dropout",
    "embed_dropout",
    "hidden_dropout",
    "resid_dropout",
    "layerdrop",
    "router_jitter_noise",
)
FAMILIES: dict[str, dict[str, Any]] = {
    "GPT2": {"n_embd": 16, "n_layer": 2, "n_head": 2},
    "GPTNeoX": {"intermediate_size": 32},
    "OPT": {"ffn_dim": 32, "word_embed_proj_dim": 16},
    "Phi": {"intermediate_size": 32},
    "Falcon": {},
    "Llama": {"intermediate_size": 32},
    "Mixtral": {"intermediate_size": 32, "num_key_value_heads": 2, "num_local_experts": 2},
}


@pytest.mark.parametrize("family", FAMILIES)
def test_training_steps_compute_what_evaluation_does(family: str, tmp_path: Path) -> None:
    kind = getattr(transformers, f"{family}Config")
    known = vars(kind(**SIZES)).keys() & set(RATES)
    config = kind(**{**SIZES, **FAMILIES[family], **dict.fromkeys(known, 0.5)})
    model: Any = transformers.AutoModelForCausalLM.from_config(config)
    tokens = torch.arange(1, 9)[None]
    expected = model.eval()(tokens).logits
    disable_dropout(model)
    torch.testing.assert_close(model.train()(tokens).logits, expected)
    model.save_pretrained(tmp_path)
    restore_dropout(model, tmp_path)
    written = json.loads((tmp_path / "config.json").read_text())
    assert {name: written[name] for name in known} == dict.fromkeys(known, 0.5)


def test_dropout_of_an_adapter_is_refused() -> None:
    with pytest.raises(ValidationError, match=r"lora.dropout has no effect"):
        DPOConfig.model_validate({**EXAMPLES["dpo"].config, "lora": {"dropout": 0.1}})
