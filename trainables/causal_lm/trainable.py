"""`causal_lm` as the registry names it; the work is in `loop`, which imports torch."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from results.export.exportable import Exportable
from trainables.base import Split, Trainable, TrainableConfig
from trainables.causal_lm.config import CausalLMConfig
from trainables.client import Client
from trainables.worker import Worker


class CausalLM(Trainable[CausalLMConfig]):
    """A causal language model trained to predict the next token of real text."""

    Config: ClassVar[type[TrainableConfig]] = CausalLMConfig
    elastic: ClassVar[bool] = True

    def train(self, config: CausalLMConfig, worker: Worker) -> None:
        """Train one trial; see the base class."""
        from trainables.causal_lm import loop

        loop.train(config, worker)

    def evaluate(
        self, config: CausalLMConfig, weights: Path, split: Split, cache: Path
    ) -> dict[str, float]:
        """`eval_loss` (mean over tokens, nats) on a split; see the base class."""
        from trainables.causal_lm import loop

        return loop.evaluate(config, weights, split, cache)

    def examples(
        self, config: CausalLMConfig, weights: Path, split: Split, cache: Path
    ) -> dict[str, list[float]]:
        """`eval_loss` of each sequence; see the base class."""
        from trainables.causal_lm import loop

        return {"eval_loss": loop.examples(config, weights, split, cache)}

    def client(self, config: CausalLMConfig, cache: Path) -> Client:
        """Sequences of text; see the base class."""
        from trainables.causal_lm import client

        return client.CausalLMClient(config, cache)

    def initial(self, config: CausalLMConfig, target: Path, cache: Path) -> str:
        """Weights of step 0; see the base class."""
        from trainables.causal_lm import loop

        return loop.initial(config, target, cache)

    def digest(self, config: CausalLMConfig, weights: Path, cache: Path) -> str:
        """Of the model that such a folder gives; see the base class."""
        from trainables.causal_lm import loop

        return loop.digest(config, weights, cache)

    def export_hf(self, config: CausalLMConfig, weights: Path, target: Path, cache: Path) -> None:
        """Write a `transformers` folder; see the base class."""
        from trainables.causal_lm import form

        form.export_hf(config, weights, target, cache)

    def exportable(self, config: CausalLMConfig, weights: Path, cache: Path) -> Exportable:
        """Token ids [sequences, tokens] to logits [sequences, tokens, vocabulary]."""
        from trainables.causal_lm import form

        return form.exportable(config, weights, cache)
