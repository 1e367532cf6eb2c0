"""The stages of a language model: consecutive layers, with embedding or output at an end.

The loss that balances experts has a gradient that depends on how often the whole batch picks each
expert, in all blocks. So the stages count first, and only then compute gradients.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

from search_spaces.errors import UserError
from search_spaces.layout import Layout
from trainables.causal_lm.config import CausalLMConfig
from trainables.causal_lm.experts import ExpertsConfig, expert_counts, router_logits
from trainables.causal_lm.layouts.rules import PIPELINED
from trainables.causal_lm.model.objective import plan_of_layers
from trainables.causal_lm.model.packing import Packing, packing_by_masks
from trainables.parallel.context import document_mask
from trainables.parallel.fsdp import shard_weights, split_experts
from trainables.parallel.mesh import Mesh
from trainables.parallel.pipeline import Activations, Pipeline, RemoteLayer, layers_of_stages
from trainables.parallel.tensor import split_layers
from trainables.training.precision import autocast, compute_dtype


class StageBalance:
    """Counts the tokens of each expert on all ranks, and adds the gradient of their balance."""

    def __init__(self, experts: ExpertsConfig, mesh: Mesh) -> None:
        """Begin without a batch.

        Args:
            experts: their number, and the weight of the loss.
            mesh: of this rank.
        """
        self._experts = experts
        self._copies = mesh.dp_size * mesh.layout.tp  # ranks that count the tokens of a block
        self._left = 0
        self._told: list[torch.Tensor] = []
        self._sum: dist.Work | None = None

    def start(self, passes: int) -> None:
        """Begin a batch, of which the stages of this rank have so many forward passes."""
        self._left = passes
        self._told.clear()

    def attach(self, hidden: torch.Tensor, logits: Sequence[torch.Tensor]) -> torch.Tensor:
        """The activations, whose backward pass adds the gradient of the balance.

        Args:
            hidden: that the stage returns.
            logits: of the router of each of its blocks, [tokens, experts].
        """
        shares = [one.float().softmax(dim=-1) for one in logits]
        if self._left:
            self._told.append(expert_counts(shares, self._experts))
            self._left -= 1
            if not self._left:
                self._told = [torch.stack(self._told).sum(dim=0)]
                # no waiting here: other stages still need what this one sends next
                self._sum = dist.all_reduce(self._told[0], async_op=True)
        if not torch.is_grad_enabled():
            return hidden
        total = torch.stack([one.sum(dim=0) for one in shares]).sum(dim=0)
        attached: torch.Tensor = _Attached.apply(hidden, total, self)  # type: ignore[no-untyped-call]
        return attached

    def gradient(self) -> torch.Tensor:
        """Of the loss by the sum of the shares of each expert, [experts]; waits for all ranks."""
        if self._sum is not None:
            self._sum.wait()
            self._sum = None
        told, experts = self._told[0], self._experts
        fractions, rows = told[:-1] / told[-1], told[-1] / self._copies
        return experts.balance * experts.count * fractions / rows


class _Attached(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: torch.Tensor, total: torch.Tensor, balance: StageBalance
    ) -> torch.Tensor:
        ctx.balance = balance
        return hidden.clone()  # torch's zero_bubble takes no view

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None]:
        return grads[0], ctx.balance.gradient(), None


class LayerStage(nn.Module):
    """Some layers of a model, computed by its own `transformers` class."""

    def __init__(
        self,
        model: nn.Module,
        own: range,
        config: CausalLMConfig,
        dtype: torch.dtype,
        balance: StageBalance | None = None,
    ) -> None:
        """Share the modules of a model.

        Args:
            model: of `transformers`, whose class is one of `PIPELINED`.
            own: the layers of this stage.
            config: gives the dtype of the computation.
            dtype: of the activations that stages send.
            balance: of the experts; None: there are none, or nothing balances them.
        """
        super().__init__()
        hf: Any = model
        base = hf.base_model
        shared = {id(part): part for part in (*base.children(), base.config)}
        self.base: Any = deepcopy(base, shared)  # a copy with the same modules
        self.layers = [layer for number, layer in enumerate(base.layers) if number in own]
        self.base.layers = nn.ModuleList(
            layer if number in own else RemoteLayer() for number, layer in enumerate(base.layers)
        )
        self._is_first, is_last = own.start == 0, own.stop == len(base.layers)
        self.head = hf.get_output_embeddings() if is_last else None
        if not self._is_first:
            self.base.embed_tokens = RemoteLayer()
        if not is_last:
            self.base.norm = RemoteLayer()
        self._config, self._dtype, self._balance = config, dtype, balance

    def forward(
        self,
        given: torch.Tensor,
        positions: torch.Tensor | None = None,
        targets: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """As `Pipeline` says.

        Args:
            given: token ids, int64 [rows, length], or activations [rows, length, width].
            positions: as of `NextTokenLoss`.
            targets: the next tokens, int64 [rows, length]; those that do not count are `IGNORED`.
        """
        with autocast(self._config.dtype, given.device):
            hidden = self._hidden(given, positions)
            if self.head is None:
                return hidden.to(self._dtype)
            logits: torch.Tensor = self.head(hidden).float()
        if targets is None:
            return logits
        losses = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum")
        return losses.reshape(1)

    def _hidden(self, given: torch.Tensor, positions: torch.Tensor | None) -> torch.Tensor:
        """Outputs of the last layer, [rows, length, width]."""
        name = "input_ids" if self._is_first else "inputs_embeds"
        if positions is not None and packing_by_masks(self.base) is Packing.POSITIONS:
            others = {"position_ids": positions}
        else:
            others = document_mask(positions)
        compute = partial(self.base, **{name: given}, use_cache=False, **others)
        if self._balance is None:
            found: torch.Tensor = compute().last_hidden_state
            return found
        with router_logits(self.base) as routed:
            found = compute().last_hidden_state
        return self._balance.attach(found, routed)


def make_pipeline(model: nn.Module, config: CausalLMConfig, mesh: Mesh) -> Pipeline:
    """Keep this rank's stages of a model, in place; every rank has the whole model before.

    Names of parameters stay, so that checkpoints are those of any layout. Tied embeddings are on
    the first and the last rank.

    Raises:
        UserError: the model cannot be cut.
    """
    hf: Any = model
    layout, here = mesh.layout, mesh.coordinates["pp"]
    parts = _parts(hf, layout)
    dtype = compute_dtype(config.dtype, mesh.device or torch.device("cpu"))
    split_experts(model, mesh, dtype)
    if layout.tp > 1:
        split_layers(model, plan_of_layers(model, mesh), mesh.device_mesh["tp"])
    sent = dtype if mesh.dp_size > 1 else torch.float32  # FSDP2 casts inputs of a stage
    balance = None
    if config.experts is not None and config.experts.balance:
        balance = StageBalance(config.experts, mesh)
    mine = {n: part for n, part in enumerate(parts) if n % layout.pp == here}
    stages = {n: LayerStage(model, part, config, sent, balance) for n, part in mine.items()}
    tied = hf.get_input_embeddings().weight is hf.get_output_embeddings().weight
    _forget_others(hf, {number for part in mine.values() for number in part}, tied=tied)
    for stage in stages.values():
        shard_weights(stage, stage.layers, mesh, dtype)
    width = hf.config.hidden_size
    return Pipeline(
        model,
        stages,
        mesh,
        Activations(lambda stage, tokens: (*tokens, width), sent),
        _tied_weight(hf, stages, mesh) if tied else None,
        balance.start if balance else None,
    )


def _parts(hf: Any, layout: Layout) -> list[range]:
    """The layers of each stage of a model."""
    if hf.config.model_type not in PIPELINED:
        known = ", ".join(PIPELINED)
        raise UserError(f"layout pp: models of type {hf.config.model_type}; it takes {known}")
    layers = len(hf.base_model.layers)
    if layers < layout.num_stages:
        raise UserError(
            f"layout {layout}: {layout.num_stages} stages, and the model has {layers} layers"
        )
    return layers_of_stages(layers, layout.num_stages)


def _tied_weight(hf: Any, stages: Mapping[int, LayerStage], mesh: Mesh) -> nn.Parameter | None:
    """The weight of embedding and output, if this rank has one of them."""
    shared: nn.Parameter | None = None
    if mesh.layout.num_stages - 1 in stages:
        shared = hf.get_input_embeddings().weight = hf.get_output_embeddings().weight
        mesh.repeated.append(hf.get_output_embeddings().weight)
    elif 0 in stages:
        shared = hf.get_input_embeddings().weight
    return shared


def _forget_others(hf: Any, own: set[int], *, tied: bool) -> None:
    """Drop the modules of other ranks from a model."""
    base = hf.base_model
    count = len(base.layers)
    for number in set(range(count)) - own:
        base.layers[number] = RemoteLayer()
    is_first, is_last = 0 in own, count - 1 in own
    if not is_first and not (is_last and tied):
        hf.set_input_embeddings(RemoteLayer())
    if not is_last:
        base.norm = RemoteLayer()
        hf.set_output_embeddings(RemoteLayer())
