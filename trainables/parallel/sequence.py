"""Sequence parallelism (Korthikanti et al. 2022): between shared layers, ranks have parts.

Norms and residuals of a Llama are computed on a part of each sequence by each rank of `tp`. The
ranks gather whole sequences before attention and MLP, and scatter the sums of their results.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ParallelStyle,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
)

TOKENS = 1
"""Dimension of the activations, [batch, tokens, width]."""


def cut_sequences(plan: Mapping[str, str]) -> dict[str, str]:
    """The plan of a Llama of `transformers`, with sequences that are cut between its layers.

    Positions and masks are computed from the embeddings, which are whole.
    """
    rows = {name: "rowwise_scatter" for name, kind in plan.items() if kind == "rowwise"}
    return {
        **plan,
        **rows,
        "model.layers.0": "cut",
        "model.layers.*.input_layernorm": "norm_of_part",
        "model.layers.*.self_attn": "gather",
        "model.layers.*.post_attention_layernorm": "norm_of_part",
        "model.layers.*.mlp": "gather",
        "model.norm": "last_norm",
    }


class _Gather(ParallelStyle):
    """The inputs of a module are whole; in the backward pass, a rank has the sum of its part."""

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        def gather(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            return tuple(map(_whole, args)), {name: _whole(v) for name, v in kwargs.items()}

        module.register_forward_pre_hook(gather, with_kwargs=True)
        return module


class _LastNorm(SequenceParallel):
    """A norm of parts, whose output is whole."""

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        found = super()._apply(module, device_mesh)
        found.register_forward_hook(lambda *call: _whole(call[-1]).to_local())
        return found


def _whole(value: Any) -> Any:
    return value.redistribute(placements=[Replicate()]) if isinstance(value, DTensor) else value


STYLES: dict[str, ParallelStyle] = {
    "cut": PrepareModuleInput(input_layouts=Replicate(), desired_input_layouts=Shard(TOKENS)),
    "norm_of_part": SequenceParallel(sequence_dim=TOKENS),
    "gather": _Gather(),
    "rowwise_scatter": RowwiseParallel(output_layouts=Shard(TOKENS), use_local_output=False),
    "last_norm": _LastNorm(sequence_dim=TOKENS),
}
"""How ranks have a module, by the names in a plan."""
