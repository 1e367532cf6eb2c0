"""Loads a model of `transformers`, and refuses what that would replace by random weights."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import torch
import transformers
from torch import nn
from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING_NAMES

from search_spaces.errors import UserError
from trainables.base import Split
from trainables.causal_lm.config import CausalLMConfig
from trainables.data.text.dataset import Dataset
from trainables.training.start_model import loading


def pretrained_model(
    name: str, kind: str = CausalLMConfig.model_class, settings: Mapping[str, Any] | None = None
) -> nn.Module:
    """The float32 model of a folder or hub id; its own code is not run.

    Args:
        name: folder or hub id.
        kind: the class of `transformers` that loads it.
        settings: in place of those of its configuration; a last layer that they change is new.

    Raises:
        UserError: the folder is gone, or its weights are of another model.
    """
    auto: Any = getattr(transformers, kind)
    with loading(name):
        model, found = auto.from_pretrained(
            name,
            dtype=torch.float32,
            trust_remote_code=False,
            weights_only=True,  # a pickle may hold tensors only
            output_loading_info=True,
            ignore_mismatched_sizes=True,
            **(settings or {}),
        )
    both_ways = model.config.model_type in MODEL_FOR_MASKED_LM_MAPPING_NAMES
    if both_ways and kind == CausalLMConfig.model_class and not model.config.is_decoder:
        raise UserError(f"{name}: a {type(model).__name__} also reads what follows a token")
    for problem in _wrong_weights(model, found, new_head=bool(settings)):
        raise UserError(f"{name}: {problem}")
    loaded: nn.Module = model
    return loaded


def _wrong_weights(model: Any, found: Mapping[str, Any], *, new_head: bool) -> Iterator[str]:
    """What `transformers` would replace by random weights, or leave out, a line each."""
    lost = sorted([*found["missing_keys"], *(name for name, *_ in found["mismatched_keys"])])
    if new_head:  # the last layers may be new
        base = f"{model.base_model_prefix}."
        lost = [n for n in lost if n.startswith(base) and ".pooler." not in n]
    kind, own = type(model).__name__, {re.sub(r"\d+", "0", key) for key in model.state_dict()}
    more = (key for key in found["unexpected_keys"] if re.sub(r"\d+", "0", key) in own)
    yield from (f"has no weights of a {kind} of its config.json, such as {n}" for n in lost)
    yield from (f"has more layers than its config.json says, such as {key}" for key in more)


def check_tokens(model: Any, dataset: Dataset, name: str) -> None:
    """Pass if the data has no token that the model does not know.

    Raises:
        UserError: it has, as the model was not resized for its tokenizer.
    """
    known = model.get_input_embeddings().num_embeddings
    if dataset.meta["vocab_size"] > known:
        most = max(int(dataset.sequences(split).max()) for split in Split)
        if most >= known:
            raise UserError(f"{name}: knows {known} tokens, and its tokenizer gives number {most}")
