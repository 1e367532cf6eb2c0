"""Loads models of `transformers`, and refuses weights that are not theirs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING_NAMES

from results.checkpoints.shards import is_sharded
from search_spaces.errors import UserError
from trainables.parallel.sharded_state import load_weights
from trainables.training.start_model import loading

_MUST_BE_EMPTY = ("missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs")
CAUSAL = "AutoModelForCausalLM"
_NUMBER = re.compile(r"\d+")
_NO_WEIGHT = re.compile(r"\.pooler\.|\.num_batches_tracked$")


def pretrained_model(name: str, kind: str = CAUSAL, **settings: Any) -> Any:
    """The float32 model of a folder or hub id; its own code is not run.

    Args:
        name: folder or hub id.
        kind: the class of `transformers` that loads it.
        settings: in place of those of its configuration; a last layer that they change is new.

    Raises:
        UserError: the folder is gone, or its weights are of another model.
    """
    with loading(name):
        model, found = getattr(transformers, kind).from_pretrained(
            name,
            dtype=torch.float32,
            trust_remote_code=False,
            weights_only=True,  # a pickle may hold tensors only
            output_loading_info=True,
            ignore_mismatched_sizes=True,
            **settings,
        )
    both_ways = model.config.model_type in MODEL_FOR_MASKED_LM_MAPPING_NAMES
    if both_ways and kind == CAUSAL and not model.config.is_decoder:
        raise UserError(f"{name}: a {type(model).__name__} also reads what follows a token")
    lost = sorted([*found["missing_keys"], *(key for key, *_ in found["mismatched_keys"])])
    if settings:  # the last layers may be new
        base = f"{model.base_model_prefix}."
        lost = [n for n in lost if n.startswith(base) and not _NO_WEIGHT.search(n)]
    own = {_NUMBER.sub("0", key) for key in model.state_dict()}
    more = [key for key in found["unexpected_keys"] if _NUMBER.sub("0", key) in own]
    if lost or more:  # `transformers` draws the first at random, and leaves out the others
        which = f"has no weights of a {type(model).__name__} of" if lost else "has more layers than"
        raise UserError(f"{name}: {which} its config.json, such as {[*lost, *more][0]}")
    for key, weight in model.named_parameters():
        if not weight.detach().sum().isfinite():  # a sum needs no memory
            raise UserError(f"{name}: {key} has values that are no finite numbers")
    return model


def saved_model(weights: Path, kind: str, shape: Any, **options: Any) -> Any:
    """The float32 model of a checkpoint, of a class and configuration of `transformers`.

    Raises:
        UserError: the weights are of another model.
    """
    auto = getattr(transformers, kind)
    if is_sharded(weights):
        with torch.random.fork_rng(devices=[]):  # of initial weights, which are replaced
            model = auto.from_config(shape, dtype=torch.float32)
        load_weights(model, weights)
        return model
    model, found = auto.from_pretrained(
        weights,
        config=shape,
        dtype=torch.float32,
        local_files_only=True,
        output_loading_info=True,
        trust_remote_code=False,
        use_safetensors=True,
        **options,
    )
    if wrong := {key: found[key] for key in _MUST_BE_EMPTY if found.get(key)}:
        raise UserError(f"{weights}: its weights are of another model ({wrong})")
    return model
