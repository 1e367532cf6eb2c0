"""The model with which a trial begins, which a process keeps for the trials that follow."""

from __future__ import annotations

from collections.abc import Hashable
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from torch import nn

from trainables.causal_lm.config import CausalLMConfig
from trainables.causal_lm.model.model import architecture, fresh_model
from trainables.data.text.dataset import Dataset
from trainables.parallel.mesh import Mesh
from trainables.runtime.leftovers import KEPT

KEPT_BYTES = 2**29
"""Random weights up to this size are kept: their random numbers take seconds."""


def first_model(config: CausalLMConfig, dataset: Dataset) -> tuple[nn.Module, str]:
    """As `new_model`, and the digest of its weights.

    A process keeps the last one for its next trials. The base of an adapter stays on the device to
    which a trial moves it; its weights are frozen, and shared: no trial may write them. Of a random
    model, each trial gets a copy.
    """
    key = _key(config, dataset)
    if key is None or key != KEPT.key:
        KEPT.keep(None, None)  # frees it before the next one is made
        generator = torch.get_rng_state()
        found: tuple[Any, str] = fresh_model(config, dataset)
        weights = [*found[0].parameters()]
        few = config.lora is not None or sum(p.nbytes for p in weights) <= KEPT_BYTES
        drawn = not torch.equal(generator, torch.get_rng_state())  # for weights that no file has
        if key is None or not few or drawn:
            return found
        found[0].compared = {}
        KEPT.keep(key, found, weights)
    model, digest = KEPT.value
    shared = [model.compared]
    if config.lora is not None:
        shared += model.requires_grad_(False).parameters()
    return deepcopy(model, {id(each): each for each in shared}), digest


def unshare(model: nn.Module, config: CausalLMConfig, mesh: Mesh) -> None:
    """Let ranks have parts of a model of `first_model`, and compute its packing together."""
    if mesh.is_sharded:
        hf: Any = model
        hf.compared = {}
        if config.lora is not None:
            KEPT.keep(None, None)


def _key(config: CausalLMConfig, dataset: Dataset) -> Hashable:
    """Of what the weights of `new_model` depend on; None: they are not kept."""
    name, kind, meta = config.model_name_or_path, config.model_class, dataset.meta
    if name is None:
        shape = architecture(config, meta).to_json_string(use_diff=False)
        scale = config.parametrization, config.base_hidden_size, config.base_num_layers
        return kind, shape, config.init_seed, *scale
    if config.lora is None or config.lora.quantize or not Path(name).is_dir():
        return None
    files = [(f.name, f.stat()) for f in sorted(Path(name).iterdir())]
    state = tuple((n, s.st_ino, s.st_mtime_ns, s.st_size) for n, s in files)
    head = "" if kind == CausalLMConfig.model_class else repr(config.model_settings(meta))
    return kind, name, state, head, config.init_seed if head else None
