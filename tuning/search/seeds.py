"""The seed of each trial. No Optuna here: commands that only read a sweep need it, too."""

from __future__ import annotations

from functools import lru_cache

import numpy as np


@lru_cache(8)  # the study and the trial's record ask for the same one
def derive_seed(seed: int, number: int) -> int:
    """An independent 32-bit seed for a trial number of a sweep (numpy's SeedSequence)."""
    return int(np.random.SeedSequence([seed, number]).generate_state(1)[0])
