"""Pipeline parallelism by torch's schedules: ranks have some layers each, and pass activations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
)

from trainables.parallel.fsdp import free_gathered
from trainables.parallel.mesh import Mesh
from trainables.parallel.sharded_state import local_part, sum_gradient

_SCHEDULES: dict[str, Any] = {
    "gpipe": ScheduleGPipe,
    "1f1b": Schedule1F1B,
    "interleaved": ScheduleInterleaved1F1B,
    "zero_bubble": ScheduleInterleavedZeroBubble,
}
_KEPT = 8
"""Shapes of batches whose schedules, with their buffers, are kept."""


class RemoteLayer(nn.Module):
    """Stands for a layer of another rank: its input is its output."""

    def forward(self, hidden_states: torch.Tensor, **others: Any) -> torch.Tensor:
        """Return the activations unchanged."""
        return hidden_states


@dataclass(frozen=True)
class Activations:
    """What stages send.

    Attributes:
        shape: of what a stage takes, by its number, from 1, and the shape of what the first takes.
        dtype: of it.
    """

    shape: Callable[[int, tuple[int, ...]], tuple[int, ...]]
    dtype: torch.dtype


class Pipeline(nn.Module):
    """The stages of a model that this rank has, and those that follow and precede them elsewhere.

    The first stage takes samples [rows, ...], and the others the activations of the one before. The
    last one returns the sum of the losses, [1], if it gets `targets`, and scores if not. All take
    the other tensors of a batch by name.
    """

    def __init__(
        self,
        model: nn.Module,
        stages: Mapping[int, nn.Module],
        mesh: Mesh,
        sent: Activations,
        tied: nn.Parameter | None = None,
        count: Callable[[int], None] | None = None,
    ) -> None:
        """Join the stages of all ranks.

        Args:
            model: has the parameters of this rank's stages, and its own names for them.
            stages: of this rank, by number.
            mesh: of this rank.
            sent: by the stages.
            tied: weight that the first and the last stage have in common, if this rank has it.
            count: called before each batch with the number of forward passes of this rank's stages,
                if they count something in all of them before they compute gradients.
        """
        super().__init__()
        self.model = model
        self._stages, self._mesh, self._sent = dict(stages), mesh, sent
        self._tied = [tied] if tied is not None else []  # a list: it has its name in the model
        self._group = mesh.device_mesh["pp"].get_group()
        self._weight, self._count = 1.0, count
        self._schedules: dict[tuple[int, ...], Any] = {}

    def train(self, mode: bool = True) -> Pipeline:
        """Set the mode of the stages too, which share the model's modules."""
        for stage in self._stages.values():
            stage.train(mode)
        return super().train(mode)

    def backward(
        self, samples: torch.Tensor, weight: float, **others: torch.Tensor
    ) -> torch.Tensor:
        """Add the gradients of the weighted sum of the losses of a batch, by its microbatches.

        Args:
            samples: [rows, ...], the same on all ranks of the pipeline.
            weight: of the sum.
            others: inputs of each stage, [rows, ...].

        Returns:
            The weighted sum on the rank of the last stage, 0 on others; detached.
        """
        self._weight = weight
        self._count_all(samples, others)
        losses: list[torch.Tensor] = []
        given = (samples,) if 0 in self._stages else ()
        schedule = self._schedule(samples)
        schedule.step(*given, target=samples, losses=losses, return_outputs=False, **others)
        self._add_tied_gradient()
        return torch.stack([torch.zeros((), device=samples.device), *losses]).sum().detach()

    @torch.no_grad()
    def forward(self, samples: torch.Tensor, **others: torch.Tensor) -> torch.Tensor | None:
        """The scores of the last stage; None on the ranks that do not have it."""
        found = samples
        for number, stage in self._stages.items():
            if number:
                shape = self._sent.shape(number, tuple(samples.shape))
                found = torch.empty(shape, dtype=self._sent.dtype, device=samples.device)
                dist.recv(found, group=self._group, group_src=self._rank_of(number - 1))
            found = stage(found, **others)
            free_gathered(stage)
            if number < self._num_stages - 1:
                to = self._rank_of(number + 1)
                dist.send(found.contiguous(), group=self._group, group_dst=to)
        return found if self._num_stages - 1 in self._stages else None

    @property
    def _num_stages(self) -> int:
        return self._mesh.layout.num_stages

    def _rank_of(self, stage: int) -> int:
        return stage % self._mesh.layout.pp

    def _count_all(self, samples: torch.Tensor, others: Mapping[str, torch.Tensor]) -> None:
        """Let stages count over the microbatches of a batch before its first backward pass."""
        if self._count is None:
            return
        layout = self._mesh.layout
        self._count(layout.num_microbatches * len(self._stages))
        if layout.schedule == "gpipe":  # all of its forward passes come first
            return
        parts = samples.chunk(layout.num_microbatches)
        more = {name: other.chunk(layout.num_microbatches) for name, other in others.items()}
        for place, part in enumerate(parts):
            self(part, **{name: chunks[place] for name, chunks in more.items()})

    def _schedule(self, samples: torch.Tensor) -> Any:
        """torch's schedule for batches of this shape."""
        shape, layout = tuple(samples.shape), self._mesh.layout
        if shape in self._schedules:
            return self._schedules[shape]
        if len(self._schedules) == _KEPT:
            self._schedules.pop(next(iter(self._schedules)))
        part = (shape[0] // layout.num_microbatches, *shape[1:])
        last = self._num_stages
        taken = [torch.empty(part, dtype=samples.dtype, device="meta")]
        taken += [
            torch.empty(
                self._sent.shape(n, part), dtype=self._sent.dtype, device="meta", requires_grad=True
            )
            for n in range(1, last)
        ]
        taken.append(torch.empty(1, device="meta", requires_grad=True))  # the loss
        stages = [
            PipelineStage(
                module,
                number,
                last,
                samples.device,
                input_args=taken[number],
                output_args=taken[number + 1],
                group=self._group,
            )
            for number, module in self._stages.items()
        ]
        kind = _SCHEDULES[layout.schedule]
        self._schedules[shape] = kind(
            stages if layout.stages_per_rank > 1 else stages[0],
            layout.num_microbatches,
            loss_fn=lambda loss, _: loss.sum() * self._weight,
            scale_grads=False,
        )
        return self._schedules[shape]

    def _add_tied_gradient(self) -> None:
        """Sum the gradients of the weight that the first and the last stage have in common."""
        at = self._mesh.layout.pp - 1 if 0 in self._stages else 0
        for weight in self._tied:
            if weight.grad is None:  # frozen
                continue
            sum_gradient(weight)
            mine = local_part(weight.grad)
            other = torch.empty_like(mine)
            ops = [
                dist.P2POp(dist.isend, mine, group=self._group, group_peer=at),
                dist.P2POp(dist.irecv, other, group=self._group, group_peer=at),
            ]
            for work in dist.batch_isend_irecv(ops):
                work.wait()
            mine.add_(other)


def layers_of_stages(layers: int, stages: int) -> list[range]:
    """The layers of each stage; the first ones have one more if they cannot be equal."""
    ends = [0]
    for stage in range(stages):
        ends.append(ends[-1] + layers // stages + (stage < layers % stages))
    return [range(begin, end) for begin, end in pairwise(ends)]
