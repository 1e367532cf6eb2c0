"""Export of a trained language model to other runtimes: token ids in, logits out."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jinja2 import TemplateError
from torch import nn

from results.export.exportable import Exportable, TokenSample
from trainables.base import Split
from trainables.causal_lm.config import CausalLMConfig
from trainables.causal_lm.model.model import load_merged, open_tokenizer
from trainables.data.text.dataset import Dataset, Tokens
from trainables.data.tokenizer import open_encoder

TEXT = (
    'def greet(name: str) -> str:\n    """Say hello, día, 你好。"""\n\treturn f"hi {name}\\n"\n\n\n'
    "IT'S 2026, isn't it?  We'LL pay 1234567.89 for x2y3,   or ٣٤٥ and ½ \r\n"
    "e\u0301 is not é; नमस्ते, ไทย, 한국어、日本語! 👩\u200d👧 🇩🇪\u00a0$5 \t \n end  "
)
"""Text that tells tokenizers apart: code, contractions, digits, spaces, marks and scripts."""
CONVERSATION = (
    {"role": "user", "content": f"What does this do?\n\n{TEXT}"},
    {"role": "assistant", "content": "It greets:  12 + 34 = 46, día.\n"},
    {"role": "user", "content": "And then?"},
)


class Logits(nn.Module):
    """A `transformers` model with one input and one output; `pad` is the token behind texts."""

    def __init__(self, model: nn.Module, pad: int | None = None) -> None:
        super().__init__()
        self.model, self._pad = model, pad

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        """Logits [sequences, tokens, vocabulary] of token ids [sequences, tokens]."""
        more = {}
        if self._pad is not None:  # such a token inside a text is no padding
            behind = (input_ids != self._pad).long().flip(1).cumsum(1).flip(1)
            more["attention_mask"] = behind.clamp(max=1)
        out: Any = self.model(input_ids=input_ids, use_cache=False, **more)
        logits: torch.Tensor = out.logits
        return logits


def exportable(config: CausalLMConfig, dataset: Dataset, weights: Path) -> Exportable:
    """Token ids [sequences, tokens] to logits [sequences, tokens, vocabulary].

    It is verified on sequences of the selection split.
    """
    merged: Any = load_merged(config, dataset, weights)
    if config.experts is not None:
        merged.set_experts_implementation("batched_mm")  # plain products, which all runtimes have
    model = Logits(merged).eval()
    rows = dataset.sequences(Split.SELECTION)
    half = max(2, config.sequence_length // 2)
    shapes = ((2, config.sequence_length), (1, half), (3, 2))
    examples = tuple(_tokens(rows, *shape) for shape in shapes)
    names = {0: "batch", 1: "sequence"}
    shape = merged.config.get_text_config()
    limits = {
        "largest": shape.vocab_size - 1,
        "longest": getattr(shape, "max_position_embeddings", None) or math.inf,
    }
    sample = _sample(dataset, config)
    return Exportable(model, "input_ids", "logits", examples, names, sample, **limits)


def _tokens(rows: Tokens, sequences: int, length: int) -> torch.Tensor:
    picked = np.resize(np.arange(len(rows)), sequences)
    return torch.from_numpy(np.asarray(rows[picked, :length], dtype=np.int64))


def _sample(dataset: Dataset, config: CausalLMConfig) -> TokenSample:
    opened = open_encoder(config, dataset.tokenizer_file)
    assert opened is not None, "there is a file"
    encoder = opened.tokenizer
    ids = tuple(encoder.encode(TEXT, add_special_tokens=False).ids)
    composed = "NFC" in repr(encoder.normalizer)
    tokenizer = open_tokenizer(config, dataset)
    try:
        prompt = tokenizer.apply_chat_template(
            list(CONVERSATION), tokenize=False, add_generation_prompt=True
        )
    except (ValueError, TemplateError):  # no template, or one of other conversations
        found = tokenizer(TEXT, verbose=False)  # it may be longer than a sequence
        return TokenSample(TEXT, ids, (), tuple(found["input_ids"]), composed)
    of_prompt = encoder.encode(prompt, add_special_tokens=False).ids
    return TokenSample(TEXT, ids, CONVERSATION, tuple(of_prompt), composed)
