from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from tests.trainables.local import make_worker
from trainables.checkpointing.host_buffers import HostBuffers, copy_to_host
from trainables.checkpointing.saver import DeferredWrite
from trainables.checkpointing.training_state import copy_tree, copy_weights, load_tree


def test_copy_to_host_outside_a_save_gives_new_memory() -> None:
    tensor = torch.arange(6.0).reshape(2, 3).t()
    first, second = copy_to_host([tensor])[0], copy_to_host([tensor])[0]
    assert first.data_ptr() != second.data_ptr()
    assert first.is_contiguous()
    assert torch.equal(first, tensor)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool])
def test_reuse_gives_the_same_memory_to_the_next_save(dtype: torch.dtype) -> None:
    buffers, seen = HostBuffers(), []
    for value in (1, 2, 3):
        tensors = [torch.full((3, 2), value, dtype=dtype).t() for _ in range(2)]
        with buffers.reuse():
            copies = copy_to_host(tensors)
        assert all(torch.equal(c, t) for c, t in zip(copies, tensors, strict=True))
        seen.append({c.data_ptr() for c in copies})
    assert len(seen[0]) == 2
    assert seen[0] == seen[1] == seen[2]


def test_copy_to_host_splits_large_tensors_over_threads() -> None:
    with torch.inference_mode():
        made_there = torch.randn(2**20 + 3)
    tensors = [
        torch.randn(3 * 2**20 + 1),
        torch.nn.Parameter(torch.randn(1500, 1000)),
        torch.randn(1200, 1100).t(),
        made_there,
        *torch.randn(40, 7),
        torch.randn(3, dtype=torch.complex64).conj(),
        torch.randn(3, dtype=torch.complex64).conj().imag,
        torch.ones(9, dtype=torch.bfloat16),
        torch.zeros(0),
        torch.tensor(1.0).expand(0),
        torch.tensor(3),
    ]
    buffers = HostBuffers()
    for inference in (True, False):
        with torch.inference_mode(inference), buffers.reuse():
            copies = copy_to_host(tensors)
        assert all(torch.equal(c, t) for c, t in zip(copies, tensors, strict=True))
        assert all(c.is_contiguous() and not c.requires_grad for c in copies)
        assert len({c.untyped_storage().data_ptr() for c in copies if c.numel()}) == 48


def test_reuse_copies_a_state_that_grows() -> None:
    buffers = HostBuffers()
    for count in (1, 3, 2):
        state = {f"{i}": torch.randn(4, 4, dtype=torch.complex128) for i in range(count)}
        with buffers.reuse():
            tree = copy_tree(state)
        assert len({t.data_ptr() for t in tree.tensors.values()}) == count


def test_copy_weights_keeps_tied_weights_tied() -> None:
    model, buffers = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3)), HostBuffers()
    model[1].weight = model[0].weight
    for _ in range(2):
        with buffers.reuse():
            copies = copy_weights(model)
        assert copies["0.weight"].data_ptr() == copies["1.weight"].data_ptr()
        assert copies["0.bias"].data_ptr() != copies["1.bias"].data_ptr()


def test_checkpoint_is_not_changed_by_later_training(tmp_path: Path) -> None:
    worker, state = make_worker(tmp_path, checkpoint_every=1), torch.zeros(100)

    def save(folder: Path) -> DeferredWrite:
        tree = copy_tree({"state": state, "step": int(state[0])})
        return lambda: tree.write(folder, "state")

    for step in (1, 2, 3):
        worker.report(step=step, metrics={}, checkpoint=save)
        state += 1  # training goes on while the checkpoint is written
    worker.close()
    for step in (2, 3):
        loaded = load_tree(worker.job.paths.checkpoint(step), "state")
        assert loaded["step"] == step - 1
        assert torch.equal(loaded["state"], torch.full((100,), step - 1.0))
