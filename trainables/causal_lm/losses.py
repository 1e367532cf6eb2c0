"""The losses since a report, in a checkpoint between two reports: the next report counts them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import torch

from trainables.checkpointing.saver import DeferredWrite
from trainables.worker import Worker


def copy_losses(folder: Path, worker: Worker, losses: Sequence[torch.Tensor]) -> DeferredWrite:
    """Copy the losses of this rank; see `copy_progress`."""
    text = json.dumps(torch.stack([*losses]).cpu().tolist())  # waits for the device

    def write() -> None:
        _file(folder, worker).write_text(text)

    return write


def load_losses(folder: Path, worker: Worker) -> list[torch.Tensor]:
    """The losses of this rank in a checkpoint; none if it is one of a report."""
    file = _file(folder, worker)
    values = json.loads(file.read_text()) if file.is_file() else []
    return list(torch.tensor(values, dtype=torch.float32, device=worker.device))


def _file(folder: Path, worker: Worker) -> Path:
    return folder / f"losses_{worker.rank}.json"
