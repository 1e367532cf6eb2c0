"""What a student learns: the tokens of a text, and what its teacher expects in their place."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from trainables.causal_lm.task import TextTask
from trainables.client import Rows
from trainables.distill.config import DistillConfig
from trainables.distill.loss import DistillationLoss
from trainables.distill.outputs import Outputs


@dataclass(frozen=True)
class DistillTask(TextTask):
    """Predict every next token of texts as the teacher does; evaluation needs no teacher."""

    config: DistillConfig
    outputs: Outputs | None = None

    def batch(  # type: ignore[override]
        self, rows: Rows, device: torch.device
    ) -> tuple[torch.Tensor | None, ...]:
        """The inputs of `DistillationLoss`."""
        assert self.outputs is not None
        tokens, _, positions = super().batch(rows, device)
        return tokens, positions, *self.outputs.batch(rows, device)

    def loss(self, model: nn.Module) -> nn.Module:
        """The loss that a student is trained on."""
        return DistillationLoss(model, self.config)
