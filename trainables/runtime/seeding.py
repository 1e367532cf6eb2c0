"""Random generators: seeded for a trial, saved in its checkpoints, restored after it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import torch

from trainables.runtime.global_state import restored_global_state


def rng_state(device: torch.device) -> dict[str, Any]:
    """State of every random generator of this process, as a tree that `save_tree` writes.

    Args:
        device: whose generator to include; a CPU device adds none.
    """
    name, keys, *rest = np.random.get_state(legacy=True)
    state = {
        "python": random.getstate(),
        "numpy": (str(name), torch.from_numpy(np.array(keys)), *rest),
        "torch": torch.get_rng_state(),
    }
    if device.type == "cuda":
        state["cuda"] = torch.cuda.get_rng_state(device)
    if device.type == "mps":
        state["mps"] = torch.mps.get_rng_state()
    return state


def set_rng_state(state: dict[str, Any], device: torch.device) -> None:
    """Restore the state that `rng_state` returned."""
    random.setstate(state["python"])
    name, keys, *rest = state["numpy"]
    np.random.set_state((name, keys.numpy(), *rest))
    torch.set_rng_state(state["torch"])
    if device.type == "cuda" and "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"], device)
    if device.type == "mps" and "mps" in state:
        torch.mps.set_rng_state(state["mps"])


def seed_everything(seed: int, rank: int = 0) -> None:
    """Seed Python's, numpy's and torch's generators (CUDA's too), differently on each rank."""
    python, numpy, torch_seed = np.random.SeedSequence([seed, rank]).generate_state(3)
    random.seed(int(python))
    np.random.seed(int(numpy))
    torch.manual_seed(int(torch_seed))


@contextmanager
def isolated_rng(seed: int, rank: int, device: torch.device) -> Iterator[None]:
    """Isolate a trial from the others that run in the same process.

    Seeds all generators on entry. On exit, restores the generators and all other global state
    (see `trainables.runtime.global_state`), so that no trial affects the next one.
    """
    before = rng_state(device)
    with restored_global_state():
        seed_everything(seed, rank)
        try:
            yield
        finally:
            with suppress(RuntimeError):  # a device that failed must not replace the trial's error
                set_rng_state(before, device)
