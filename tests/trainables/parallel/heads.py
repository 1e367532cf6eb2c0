"""One of two ranks that share the layers of a model with normalised and grouped heads.

    python -m tests.trainables.parallel.heads RANK WORLD FOLDER

Losses and norms of the gradient of the shared one, with whole and with cut sequences, are those of
a whole model.
"""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.nn import functional as F
from transformers import AutoModelForCausalLM, Qwen3Config

from search_spaces.layout import Layout
from trainables.parallel.fsdp import blocks_of, shard
from trainables.parallel.mesh import ALONE, Mesh
from trainables.parallel.sharded_state import clip_gradients
from trainables.parallel.tensor import cut_sequences
from trainables.training.optimizers import make_optimizer

ODD, EVEN = 65, 64
"""Vocabularies: one that two ranks cannot share."""
LENGTH = 17
"""Tokens of a sequence, of which two ranks have unequal parts."""


def new_model(vocabulary: int, *, tied: bool) -> Any:
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=vocabulary,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        tie_word_embeddings=tied,
    )
    auto: Any = AutoModelForCausalLM
    model = auto.from_config(config)
    for gain in (p for p in model.parameters() if p.ndim == 1):
        torch.nn.init.uniform_(gain, 0.5, 1.5)
    return model


def train(model: Any, mesh: Mesh) -> list[tuple[float, float]]:
    """Loss and norm of the gradient of some steps."""
    optimizer, found = make_optimizer(model, "adamw", 1e-2, 0.1, 0.99), []
    for step in range(4):
        tokens = torch.randint(EVEN, (4, LENGTH + 1), generator=torch.Generator().manual_seed(step))
        logits = model(input_ids=tokens[:, :-1], use_cache=False).logits
        loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        norm = clip_gradients(model.parameters(), 0.5, mesh)
        optimizer.step()
        optimizer.zero_grad()
        found.append((loss.item(), norm.item()))
    return found


def main(rank: int, world: int, folder: str) -> None:
    torch.set_num_threads(1)
    store, timeout = f"file://{folder}/rendezvous", timedelta(seconds=60)
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=world, timeout=timeout)
    mesh = Mesh(Layout(tp=2), rank, torch.device("cpu"))
    for vocabulary, tied in ((EVEN, True), (EVEN, False), (ODD, True)):
        whole = train(new_model(vocabulary, tied=tied), ALONE)
        for change in (dict, cut_sequences):
            model = new_model(vocabulary, tied=tied)
            shard(model, blocks_of(model), mesh, plan=change(model.tp_plan))
            shared = train(model, mesh)
            losses = (np.array(one)[:, 0] for one in (shared, whole))
            np.testing.assert_allclose(*losses, atol=5e-6, rtol=0)
            np.testing.assert_allclose(shared, whole, rtol=2e-5)
    mesh.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
