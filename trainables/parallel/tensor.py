"""Tensor parallelism by torch's `parallelize_module`: ranks have rows or columns of a layer.

With sequence parallelism (Korthikanti et al. 2022), norms and residuals of a Llama are computed on
a part of each sequence by each rank of `tp`. The ranks gather whole sequences before attention and
MLP, and scatter the sums of their results.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

from search_spaces.errors import UserError

_HEADS = 2
"""Dimension of the heads where `transformers` normalises them: [batch, tokens, heads, width]."""
_TOKENS = 1
"""Dimension of activations, [batch, tokens, width]."""


def split_layers(model: nn.Module, plan: Mapping[str, str], mesh: DeviceMesh) -> None:
    """Cut the layers of a model, in place; their inputs and outputs stay the same on all ranks.

    Args:
        model: with the same weights on every rank.
        plan: from the names of modules, in which `*` stands for a number, to
            `colwise` (outputs of a linear layer are shared, so that the next one is `rowwise`),
            `rowwise` (its inputs are shared, its output is whole),
            `colwise_gather_output` (each rank computes some outputs and gets all),
            `embedding_rowwise` (each rank has the vectors of some tokens),
            `replicated_with_grad_allreduce` (a norm of each head, whose weights stay whole), or one
            of `cut_sequences`.
        mesh: the ranks of `tp`.

    Raises:
        UserError: the plan does not fit the model, or a size does not divide by the ranks.
    """
    styles: dict[str, ParallelStyle] = {}
    modules = dict(model.named_modules())
    for pattern, kind in plan.items():
        found = [name for name in modules if fnmatchcase(name, pattern)]
        if not found:
            raise UserError(f"layout tp: the plan names '{pattern}', which the model does not have")
        styles |= {name: _style(kind, name, modules[name], mesh.size()) for name in found}
    if not styles:
        raise UserError(f"layout tp: {type(model).__name__} has no plan; use dp_shard")
    tied = _tied(modules, styles)
    if any(weight.shape[0] % mesh.size() for weight in tied.values()):
        styles = {name: style for name, style in styles.items() if name not in tied}
    # every rank has the weights: nothing is sent
    parallelize_module(model, mesh, styles, src_data_rank=None)
    first = next(iter(tied), None)
    for name in tied if first in styles else ():
        modules[name].weight = modules[str(first)].weight


def _style(kind: str, name: str, module: nn.Module, ranks: int) -> ParallelStyle:
    """The style of a module, which must be able to have it."""
    styles: dict[str, tuple[ParallelStyle, int | None]] = {
        "colwise": (ColwiseParallel(), 0),
        "rowwise": (RowwiseParallel(), 1),
        "colwise_gather_output": (ColwiseParallel(output_layouts=Replicate()), None),
        "embedding_rowwise": (RowwiseParallel(input_layouts=Replicate()), None),
        "replicated_with_grad_allreduce": (
            SequenceParallel(sequence_dim=_HEADS, use_local_output=True),
            None,
        ),
        **{name: (style, 1 if "rowwise" in name else None) for name, style in _PARTS.items()},
    }
    if kind not in styles:
        raise UserError(f"layout tp: no plan '{kind}' ({name}); there are {', '.join(styles)}")
    style, dim = styles[kind]
    weight: Any = getattr(module, "weight", None)
    if dim is not None and weight.shape[dim] % ranks:
        raise UserError(f"layout tp: {weight.shape[dim]} units of {name} do not divide by {ranks}")
    return style


def _tied(modules: Mapping[str, nn.Module], styles: Mapping[str, ParallelStyle]) -> dict[str, Any]:
    """Weights that several cut modules have in common, by the modules' names."""
    found: dict[str, Any] = {name: getattr(modules[name], "weight", None) for name in styles}
    weights = {name: weight for name, weight in found.items() if weight is not None}
    ids = [id(weight) for weight in weights.values()]
    return {name: weight for name, weight in weights.items() if ids.count(id(weight)) > 1}


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


class _GatherInputs(ParallelStyle):
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


_PARTS: dict[str, ParallelStyle] = {
    "cut": PrepareModuleInput(input_layouts=Replicate(), desired_input_layouts=Shard(_TOKENS)),
    "norm_of_part": SequenceParallel(sequence_dim=_TOKENS),
    "gather": _GatherInputs(),
    "rowwise_scatter": RowwiseParallel(output_layouts=Shard(_TOKENS), use_local_output=False),
    "last_norm": _LastNorm(sequence_dim=_TOKENS),
}
"""How ranks have a module, by the names in a plan."""
