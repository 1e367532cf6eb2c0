"""One process runs many trials: each starts from the same global state and leaves it as it was."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

from trainables.checkpointing.training_state import rng_state, set_rng_state
from trainables.runtime.global_state import restored_global_state


def seed_everything(seed: int, rank: int = 0) -> None:
    """Seed Python's, numpy's and torch's generators (CUDA's too), differently on each rank."""
    python, numpy, torch_seed = np.random.SeedSequence([seed, rank]).generate_state(3)
    random.seed(int(python))
    np.random.seed(int(numpy))
    torch.manual_seed(int(torch_seed))


@contextmanager
def isolated_rng(seed: int, rank: int, device: torch.device) -> Iterator[None]:
    """Run a trial as if it were alone in the process.

    Seeds all generators on entry; on exit puts back the generators and whatever else is global
    (see `trainables.runtime.global_state`), so that neither the trial before nor the one after can tell.
    """
    before = rng_state(device)
    with restored_global_state():
        seed_everything(seed, rank)
        try:
            yield
        finally:
            set_rng_state(before, device)
