"""One rank of any layout in one process: a process group and tensors without content."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
import transformers.integrations.moe
import transformers.masking_utils
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, unset_fake_temporarily
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.pipelining._utils import InferenceMode
from torch.distributed.pipelining.schedules import _PipelineSchedule
from transformers.distributed.expert_parallel import AllToAllEP

from trainables.parallel.mesh import Mesh


@contextmanager
def fake_group(rank: int, ranks: int) -> Iterator[None]:
    """In this block torch believes to be one rank of so many, whose collectives do nothing."""
    if ranks == 1:
        yield
        return
    excepthook = sys.excepthook  # each group adds its rank to what it prints
    dist.init_process_group("fake", rank=rank, world_size=ranks)
    try:
        yield
    finally:
        dist.destroy_process_group()
        sys.excepthook = excepthook


@contextmanager
def fake_tensors(mesh: Mesh) -> Iterator[None]:
    """In this block tensors have a shape and a dtype only.

    Where torch or `transformers` read a number from a tensor, they get what a real run has.

    Args:
        mesh: of this rank; its groups are made first.
    """
    if dist.is_initialized():
        mesh.make_groups()
    with ExitStack() as stack:
        for owner, name, replacement in (
            (DeviceMesh, "__init__", _with_numbers(DeviceMesh.__init__)),
            (_PipelineSchedule, "_warmup_p2p", _agree),
            # torch's own function takes no fake float32
            (transformers.integrations.moe, "_can_use_grouped_mm", lambda *_: False),
            (AllToAllEP, "_dispatch_tokens", _evenly(AllToAllEP._dispatch_tokens)),
            # packed sequences have a mask of their own here
            (transformers.masking_utils, "find_packed_sequence_indices", lambda _: None),
            # everything is on one device, and tensors cannot be swapped
            (nn.Module, "to", lambda module, *_, **__: module),
        ):
            stack.enter_context(patch.object(owner, name, replacement))
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")  # each rank of a real run logs them once
        stack.enter_context(FakeTensorMode(allow_non_fake_inputs=True))
        yield


class FakeDataParallel(nn.Module):
    """Sends gradients as `DistributedDataParallel` does, which does not take fake tensors."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module
        self._synchronises = True
        self._trained = [p for p in module.parameters() if p.requires_grad]
        self._bucket = torch.empty(sum(p.numel() for p in self._trained))
        self._ready = 0
        for parameter in self._trained:
            parameter.register_post_accumulate_grad_hook(self._one_is_ready)  # type: ignore[no-untyped-call]

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """In this block gradients stay on this rank."""
        self._synchronises = False
        try:
            yield
        finally:
            self._synchronises = True

    def forward(self, *inputs: Any) -> Any:
        """Compute, after the first rank's buffers have been sent."""
        buffers = [buffer.flatten() for buffer in self.module.buffers()]
        if buffers and self.training and self._synchronises:
            dist.broadcast(torch.cat(buffers), 0)
        return self.module(*inputs)

    def _one_is_ready(self, parameter: torch.Tensor) -> None:
        self._ready += 1
        if self._ready == len(self._trained):
            self._ready = 0
            if self._synchronises:
                self._send()

    def _send(self) -> None:
        parts = self._bucket.split([p.numel() for p in self._trained])  # type: ignore[no-untyped-call]
        for parameter, part in zip(self._trained, parts, strict=True):
            parameter.grad = part.view_as(parameter)
        dist.all_reduce(self._bucket)


def _with_numbers(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, whose tensors have content."""

    def call(*args: Any, **kwargs: Any) -> Any:
        with unset_fake_temporarily():
            return function(*args, **kwargs)

    return call


def _evenly(dispatch: Callable[..., Any]) -> Callable[..., Any]:
    """`AllToAllEP._dispatch_tokens`, where all ranks pick all experts equally often."""

    def call(self: Any, tokens: torch.Tensor, picked: torch.Tensor, weights: torch.Tensor) -> Any:
        ranks, parts = self.ep_mesh.size(), self.tp_mesh.size()
        pairs = -(-len(tokens) // parts) * picked.shape[-1]  # of this rank of `tp`
        sizes = [pairs // ranks + (rank < pairs % ranks) for rank in range(ranks)]
        with patch.object(FakeTensor, "tolist", lambda _: [sizes, sizes]):
            return dispatch(self, tokens, picked, weights)

    return call


def _agree(self: Any, stages: list[Any], has_backward: bool, p2p_done: bool) -> None:
    """The shapes of activations are known on all stages, and are not sent."""
    for stage in stages:
        stage._inference_mode = InferenceMode.STATIC
