import random
from pathlib import Path

import numpy as np
import torch

from trainables.checkpointing.training_state import load_tree, save_tree
from trainables.runtime.seeding import isolated_rng, rng_state, seed_everything, set_rng_state

CPU = torch.device("cpu")


def draw() -> tuple[float, float, float]:
    return random.random(), float(np.random.rand()), float(torch.rand(()))


def test_rng_state_round_trip(tmp_path: Path) -> None:
    with isolated_rng(3, 0, CPU):
        draw()
        save_tree(tmp_path, "rng", rng_state(CPU))
        expected = draw()
        draw()
        set_rng_state(load_tree(tmp_path, "rng"), CPU)
        assert draw() == expected


def test_seed_everything_differs_by_seed_and_rank() -> None:
    drawn = []
    with isolated_rng(0, 0, CPU):
        for seed, rank in [(1, 0), (1, 0), (1, 1), (2, 0)]:
            seed_everything(seed, rank)
            drawn.append(draw())
    assert drawn[0] == drawn[1]
    assert len(set(drawn)) == 3


def test_isolated_rng_restores_generators() -> None:
    state = rng_state(CPU)
    with isolated_rng(5, 0, CPU):
        draw()
    after = rng_state(CPU)
    assert after["python"] == state["python"]
    assert torch.equal(after["numpy"][1], state["numpy"][1])
    assert torch.equal(after["torch"], state["torch"])
