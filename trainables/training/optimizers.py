"""Optimizers of a training loop: AdamW, Muon and Lion, with weight decay of matrices only."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import torch
from torch import nn
from torch.distributed.tensor import DTensor

OptimizerName = Literal["adamw", "muon", "lion"]
Groups = list[dict[str, Any]]
T = TypeVar("T", bound=torch.Tensor)
LR_SCALE = "lr_scale"
"""Key of a group: its learning rate by that of the configuration; absent: 1."""


@dataclass(frozen=True)
class Scale:
    """What a parametrization multiplies for one parameter.

    Attributes:
        initial: of its initial value.
        rate: of its learning rate; its weight decay is divided by it, so that the part of a weight
            that decays in a step stays.
        eps: of AdamW's epsilon.
    """

    initial: float = 1.0
    rate: float = 1.0
    eps: float = 1.0


def make_optimizer(
    model: nn.Module,
    name: OptimizerName,
    learning_rate: float,
    weight_decay: float,
    beta2: float,
    adamw_learning_rate: float | None = None,
    scales: Mapping[str, Scale] | None = None,
) -> torch.optim.Optimizer:
    """An optimizer of a model's trained parameters.

    Gains and biases are not decayed (Brown et al. 2020).

    Args:
        model: of `transformers` for `muon`, which must know the embeddings.
        name: of the optimizer.
        learning_rate: peak step size.
        weight_decay: of matrices, per step and learning rate.
        beta2: decay of squared gradients (AdamW), or of gradients (Lion).
        adamw_learning_rate: `muon`: of the parameters that AdamW trains; None: `learning_rate`.
        scales: of parameters by name; the others have none.
    """
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    taken = _hidden_matrices(model, trained) if name == "muon" else frozenset()
    hidden = {name: p for name, p in trained.items() if id(p) in taken}
    others = {name: p for name, p in trained.items() if id(p) not in taken}
    # experts have their biases in one matrix
    decayed = {n: p for n, p in others.items() if p.ndim >= 2 and not n.endswith("bias")}
    kept = {n: p for n, p in others.items() if n not in decayed}
    rate = learning_rate if adamw_learning_rate is None else adamw_learning_rate
    groups = [
        *_groups(decayed, rate, weight_decay, scales or {}, name),
        *_groups(kept, rate, 0.0, scales or {}, name),
    ]
    betas = (0.9, beta2)
    if name == "lion":
        return Lion(groups, learning_rate, betas)
    adamw = AdamW(groups, lr=rate, betas=betas, fused=True)
    if not hidden:
        return adamw
    for group in adamw.param_groups:
        group[LR_SCALE] = rate / learning_rate * group.get(LR_SCALE, 1.0)
    matrices = _groups(hidden, learning_rate, weight_decay, scales or {}, "lion")
    return MuonWithAdamW(Muon(matrices, learning_rate, weight_decay), adamw)


def _groups(
    params: Mapping[str, nn.Parameter],
    rate: float,
    weight_decay: float,
    scales: Mapping[str, Scale],
    name: OptimizerName,
) -> Groups:
    """One group for each scale; without scales one, also of no parameters."""
    parts: dict[Scale, list[nn.Parameter]] = {} if params else {Scale(): []}
    for one, p in params.items():
        parts.setdefault(scales.get(one, Scale()), []).append(p)
    return [
        {
            "params": part,
            "lr": rate * scale.rate,
            "weight_decay": weight_decay / scale.rate,
            **({"eps": _EPS * scale.eps} if name != "lion" else {}),
            **({LR_SCALE: scale.rate} if scale.rate != 1 else {}),
        }
        for scale, part in parts.items()
    ]


_EPS = 1e-8
"""AdamW's, of torch."""


def _hidden_matrices(model: nn.Module, trained: Mapping[str, nn.Parameter]) -> frozenset[int]:
    """Ids of matrices that map hidden units to hidden units, and of stacks of them (of experts):
    not those of tokens, positions or scores, and no kernels of convolutions."""
    other = [m.weight for m in model.modules() if isinstance(m, (nn.Embedding, nn.Conv1d))]
    hf: Any = model
    head, inner = hf.get_output_embeddings(), {id(p) for p in hf.base_model.parameters()}
    others = {id(p) for p in [*other, *(head.parameters() if head is not None else ())]}
    return frozenset(
        id(p)
        for name, p in trained.items()
        if id(p) in inner - others
        and ((p.ndim == 2 and name.endswith(".weight")) or (p.ndim == 3 and min(p.shape[1:]) > 1))
    )


class Muon(torch.optim.Optimizer):
    """Muon as torch has it, also of stacks of matrices [matrices, rows, columns]: each is alone.

    Its updates have the size of AdamW's (Liu et al. 2025, 2502.16982).
    """

    def __init__(self, params: Groups, lr: float, weight_decay: float) -> None:
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay, "momentum": 0.95})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """One step of all parameters that have a gradient."""
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    self._update(p, p.grad, group)

    def _update(self, p: torch.Tensor, grad: torch.Tensor, group: dict[str, Any]) -> None:
        state, rate = self.state[p], group["lr"]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(grad)
        average = state["momentum_buffer"].lerp_(grad, 1 - group["momentum"])
        update = orthogonal(grad.lerp(average, group["momentum"]))
        p.mul_(1 - rate * group["weight_decay"])
        p.add_(update, alpha=-rate * 0.2 * math.sqrt(max(p.shape[-2:])))


def orthogonal(matrices: torch.Tensor) -> torch.Tensor:
    """The orthogonal factor of each matrix, about, bfloat16 (Jordan 2024: Newton-Schulz steps).

    Args:
        matrices: [rows, columns], or a stack of such.
    """
    a, b, c = 3.4445, -4.7750, 2.0315
    add: Any = torch.addmm if matrices.ndim == 2 else torch.baddbmm
    tall = matrices.shape[-2] > matrices.shape[-1]
    found: torch.Tensor = matrices.bfloat16()
    found = found.mT if tall else found
    found = found / found.norm(dim=(-2, -1), keepdim=True).clamp(min=1e-7)
    for _ in range(5):
        gram = found @ found.mT
        found = add(found, add(gram, gram, gram, beta=b, alpha=c), found, beta=a)
    return found.mT if tall else found


class AdamW(torch.optim.AdamW):
    """torch's AdamW, also where ranks share some weights in one way and some in another."""

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """One step; a fused kernel takes tensors of one mesh only."""
        groups = self.param_groups
        self.param_groups = [
            {**g, "params": part} for g in groups for part in group_by_mesh(g["params"])
        ]
        try:
            super().step()
        finally:
            self.param_groups = groups


def group_by_mesh(tensors: Iterable[T]) -> list[list[T]]:
    """Tensors in lists of those that the same ranks share."""
    found: dict[object, list[T]] = {}
    for tensor in tensors:
        mesh = tensor.device_mesh if isinstance(tensor, DTensor) else None
        found.setdefault(mesh, []).append(tensor)
    return list(found.values())


class MuonWithAdamW(torch.optim.Optimizer):
    """Muon for hidden matrices and AdamW for the rest, as one optimizer.

    Both take the same learning rate and weight decay.
    """

    def __init__(self, muon: Muon, adamw: torch.optim.AdamW) -> None:
        self._parts = [(muon, len(muon.param_groups)), (adamw, len(adamw.param_groups))]
        super().__init__([*muon.param_groups, *adamw.param_groups], {})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """One step of each."""
        start = 0
        for part, count in self._parts:
            part.state, part.param_groups = self.state, self.param_groups[start : start + count]
            part.step()
            start += count


class Lion(torch.optim.Optimizer):
    """Lion (Chen et al. 2023, 2302.06675): the sign of a momentum, with decoupled weight decay.

    Args:
        params: groups.
        lr: step size; a third to a tenth of AdamW's.
        betas: weight of the momentum in an update, and its own decay.
    """

    def __init__(self, params: Groups, lr: float, betas: tuple[float, float]) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """One step of all parameters that have a gradient."""
        for group in self.param_groups:
            trained = [p for p in group["params"] if p.grad is not None]
            for weights in group_by_mesh(trained):
                grads = [p.grad for p in weights if p.grad is not None]
                self._update(group, weights, grads)

    def _update(
        self, group: dict[str, Any], weights: list[torch.Tensor], grads: list[torch.Tensor]
    ) -> None:
        rate, (beta1, beta2) = group["lr"], group["betas"]
        for p in weights:
            if "momentum" not in self.state[p]:
                self.state[p]["momentum"] = torch.zeros_like(p)
        momenta = [self.state[p]["momentum"] for p in weights]
        updates = torch._foreach_lerp(grads, momenta, beta1)
        torch._foreach_sign_(updates)
        torch._foreach_mul_(weights, 1 - rate * group["weight_decay"])
        torch._foreach_add_(weights, updates, alpha=-rate)
        torch._foreach_lerp_(momenta, grads, 1 - beta2)
