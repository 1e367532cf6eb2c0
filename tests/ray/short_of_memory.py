"""A language model that finds no memory where each rank has a copy of it."""

from __future__ import annotations

from trainables.causal_lm.config import CausalLMConfig
from trainables.causal_lm.trainable import CausalLM
from trainables.worker import Worker

AFTER = 2
"""Step whose checkpoint is complete before."""


class ShortOfMemory(CausalLM):
    """Raises on every rank, as torch does."""

    def train(self, config: CausalLMConfig, worker: Worker) -> None:
        beat = worker.heartbeat

        def heartbeat() -> None:
            beat()
            if worker.job.paths.checkpoint(AFTER).exists() and not worker.mesh.is_sharded:
                raise MemoryError("DefaultCPUAllocator: can't allocate memory")

        worker.heartbeat = heartbeat  # type: ignore[method-assign]
        super().train(config, worker)
