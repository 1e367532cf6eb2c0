"""One of two ranks that share the weights of a model, with the faster loss and compiled blocks.

    python -m tests.trainables.causal_lm.fast_ranks RANK WORLD FOLDER CASE...

The case `gradients` compares a step with one process, `trial` trains with `compile: true`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from search_spaces.layout import Layout
from search_spaces.spec.layout import LayoutSpec
from tests.trainables.local import run_trial
from trainables.base import Split
from trainables.causal_lm.config import CausalLMConfig
from trainables.causal_lm.model.compilation import compile_blocks
from trainables.causal_lm.model.fast_path import speed_up
from trainables.causal_lm.model.model import new_model
from trainables.causal_lm.model.objective import (
    NextTokenLoss,
    next_token_loss,
    shard_or_move,
    to_device,
)
from trainables.data.text.dataset import prepare
from trainables.parallel.mesh import Mesh

CPU = torch.device("cpu")
CONFIG: dict[str, Any] = {
    "hidden_size": 32,
    "num_layers": 9,  # more than torch compiles of one function
    "num_heads": 2,
    "sequence_length": 32,
    "batch_size": 8,
    "max_steps": 3,
    "eval_every": 1,
    "eval_sequences": 20,
    "data": {"max_bytes": 100_000},
}


def gradients(rank: int, world: int, folder: Path, *, compiled: bool) -> None:
    """A step of the faster loss gives the gradients of one process, also a second time.

    Compiled blocks also compute their activations again; the case `trial` compiles without.
    """
    config = CausalLMConfig.model_validate(CONFIG)
    dataset = prepare(config, folder / "cache")
    tokens = to_device(dataset.sequences(Split.TRAIN)[:4], CPU)
    whole = new_model(config, dataset)
    expected = NextTokenLoss(whole, config)(tokens)
    expected.backward()
    model: Any = new_model(config, dataset)
    if compiled:
        model.gradient_checkpointing_enable({"use_reentrant": False})
        compile_blocks(model)
    shard_or_move(model, config, Mesh(Layout(dp_shard=world), rank, CPU), CPU)
    speed_up(model)
    model.train()
    for _ in range(2):
        model.zero_grad()
        loss = NextTokenLoss(model, config)(tokens)
        loss.backward()
    torch.testing.assert_close(loss, expected)
    for mine, known in zip(model.parameters(), whole.parameters(), strict=True):
        torch.testing.assert_close(mine.grad.full_tensor(), known.grad, rtol=1e-4, atol=1e-6)
    with torch.no_grad():
        judged = next_token_loss(model, config, "mean", tokens)
    torch.testing.assert_close(judged, expected.detach())


def main(rank: int, world: int, folder: Path, case: str) -> None:
    torch.set_num_threads(1)
    store = f"file://{folder / f'rendezvous_{world}'}"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=world)
    if case == "gradients":
        for compiled in (False, True):
            gradients(rank, world, folder, compiled=compiled)
    else:
        options = {"rank": rank, "world_size": world, "cache": folder / "cache"}
        layout = LayoutSpec(dp_shard=world)
        given = {**CONFIG, "compile": True, "num_layers": 2}
        run_trial(folder / case, "causal_lm", given, layout=layout, **options)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4])
