"""Tensor parallelism by torch's `parallelize_module`: ranks have rows or columns of a layer."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

from search_spaces.errors import UserError
from trainables.parallel import sequence

HEADS = 2
"""Dimension of the heads where `transformers` normalises them: [batch, tokens, heads, width]."""


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
            of `sequence.STYLES`.
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
            SequenceParallel(sequence_dim=HEADS, use_local_output=True),
            None,
        ),
        **{
            name: (style, 1 if "rowwise" in name else None)
            for name, style in sequence.STYLES.items()
        },
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
