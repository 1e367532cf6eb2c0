"""The model of a trial in its checkpoints, whole or in the parts of the ranks."""

from __future__ import annotations

from pathlib import Path

from torch import nn

from results.checkpoints.shards import MODEL
from trainables.checkpointing.saver import DeferredWrite
from trainables.checkpointing.tensor_file import write_tensors
from trainables.checkpointing.training_state import copy_weights
from trainables.parallel.fsdp import free_gathered
from trainables.parallel.sharded_state import copy_blocks, unique_state
from trainables.worker import Worker


def copy_model(model: nn.Module, folder: Path, worker: Worker, kind: str = MODEL) -> DeferredWrite:
    """Copy this rank's part of a model's weights; returns the function that writes it.

    Of a model that is not sharded, rank 0 writes `<kind>.safetensors`. `load_weights` reads both.

    Args:
        model: the same on all ranks, or of `shard`.
        folder: of the checkpoint.
        worker: this rank.
        kind: begin of the files' names.
    """
    if worker.mesh.is_sharded:
        free_gathered(model)
        blocks = copy_blocks(unique_state(model), worker.mesh)
        return lambda: blocks.write(folder, kind, worker.rank)
    if worker.rank:
        return lambda: None
    weights = copy_weights(model)
    return lambda: write_tensors(folder / f"{kind}.safetensors", weights)
