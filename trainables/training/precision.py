"""The dtype of the computation, and the scaling of losses that float16 needs."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal

import torch
from torch import nn

from trainables.parallel.mesh import ALONE, Mesh
from trainables.parallel.sharded_state import clip_gradients

DtypeName = Literal["auto", "float32", "bfloat16", "float16"]


def compute_dtype(name: DtypeName, device: torch.device) -> torch.dtype:
    """The dtype of products on a device; `auto` is bfloat16 on a GPU that has it, else float32."""
    if name != "auto":
        return {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}[
            name
        ]
    half = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    return torch.bfloat16 if half else torch.float32


def autocast(name: DtypeName, device: torch.device) -> AbstractContextManager[object]:
    """Compute in the configured dtype; nothing changes where that is so already."""
    dtype, before = compute_dtype(name, device), torch.float32
    if torch.is_autocast_enabled(device.type):
        before = torch.get_autocast_dtype(device.type)
    if dtype == before:
        return nullcontext()
    return torch.autocast(device.type, dtype=dtype, enabled=dtype != torch.float32)


class LossScaler:
    """Steps of an optimizer, with losses scaled for float16 (Micikevicius et al. 2018).

    Gradients in float16 below 6e-8 would be zero. The scale grows until a gradient overflows; that
    step is skipped and the scale halved. With another dtype, losses are not scaled.
    """

    def __init__(self, dtype: torch.dtype, device: torch.device) -> None:
        self._scaler = torch.amp.GradScaler(device.type, enabled=dtype == torch.float16)
        self._skipped = torch.zeros((), dtype=torch.int64, device=device)

    @property
    def is_enabled(self) -> bool:
        """Whether losses are scaled."""
        return self._scaler.is_enabled()

    @property
    def skipped(self) -> int:
        """Skipped steps since the start of the trial; waits for the device."""
        return int(self._skipped)

    def scale(self, loss: torch.Tensor) -> torch.Tensor:
        """The loss to compute gradients of."""
        return self._scaler.scale(loss)

    def step(
        self,
        optimizer: torch.optim.Optimizer,
        parameters: Iterable[nn.Parameter],
        limit: float | None,
        mesh: Mesh = ALONE,
    ) -> torch.Tensor | None:
        """Clip gradients and step; returns their norm before, which does not wait for a GPU.

        Args:
            optimizer: of the parameters.
            parameters: whose gradients have one norm.
            limit: largest L2 norm; infinite: not clipped; None: not even measured.
            mesh: of the ranks that have parts of the gradients.
        """
        self._scaler.unscale_(optimizer)
        norm = None if limit is None else clip_gradients(parameters, limit, mesh)
        self._scaler.step(optimizer)
        self._scaler.update()
        if self.is_enabled and norm is not None:
            self._skipped += ~norm.isfinite()
        return norm

    def state_dict(self) -> dict[str, Any]:
        """State for a checkpoint; empty without scaling."""
        return {**self._scaler.state_dict(), "skipped": self.skipped} if self.is_enabled else {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        if self.is_enabled and state:
            self._skipped.fill_(state["skipped"])
            self._scaler.load_state_dict({k: v for k, v in state.items() if k != "skipped"})
