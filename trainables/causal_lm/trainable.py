"""The trainable `causal_lm`."""

from __future__ import annotations

from typing import ClassVar

from trainables.base import Trainable
from trainables.causal_lm.config import CausalLMConfig
from trainables.config import TrainableConfig


class CausalLM(Trainable[CausalLMConfig]):
    """A causal language model trained to predict the next token of real text."""

    Config: ClassVar[type[TrainableConfig]] = CausalLMConfig
    implementation: ClassVar[tuple[str, ...]] = (
        "trainables.causal_lm.loop",
        "trainables.causal_lm.export",
        "trainables.causal_lm.client",
    )
    elastic: ClassVar[bool] = True
