"""A language model whose second rank dies or stops once, while the others wait for it."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from pydantic import Field

from trainables.causal_lm.config import CausalLMConfig
from trainables.causal_lm.trainable import CausalLM
from trainables.worker import Worker

AFTER = 2
"""Step whose checkpoint is complete before."""
SIGNALS = {"killed": signal.SIGKILL, "frozen": signal.SIGSTOP}


class KilledRankConfig(CausalLMConfig):
    """Settings."""

    fate: str = Field(description="a key of SIGNALS")
    marks: str = Field(description="folder of files that mark sent signals")


class KilledRank(CausalLM):
    """Rank 1 gets the signal at the end of a step; the others begin the collectives of the next."""

    Config = KilledRankConfig

    def train(self, config: CausalLMConfig, worker: Worker) -> None:
        assert isinstance(config, KilledRankConfig)
        mark, beat = Path(config.marks) / config.fate, worker.heartbeat

        def heartbeat() -> None:
            beat()
            begun = worker.job.paths.checkpoint(AFTER).exists()
            if worker.rank == 1 and begun and not mark.exists():
                mark.touch()
                os.kill(os.getpid(), SIGNALS[config.fate])

        worker.heartbeat = heartbeat  # type: ignore[method-assign]
        super().train(config, worker)
