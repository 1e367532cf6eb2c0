"""The trainable `causal_lm`."""

from __future__ import annotations

from typing import ClassVar

from trainables.causal_lm.config import CausalLMConfig
from trainables.causal_lm.shape import TOKENIZER
from trainables.training.communication.config import METRIC_NAMES
from trainables.training.trainable import TrainedByClients


class CausalLM(TrainedByClients[CausalLMConfig]):
    """A causal language model trained to predict the next token of real text."""

    Config = CausalLMConfig
    metric_names = (
        "eval_loss",
        "perplexity",
        "bits_per_byte",
        "train_loss",
        "learning_rate",
        "grad_norm",
        "skipped_steps",
        "tokens_per_second",
        "samples_seen",
        "mfu",
        "peak_memory_gib",
        "skipped_data",
        *METRIC_NAMES,
    )
    metric_depends_on: ClassVar = {
        "eval_loss": TOKENIZER,
        "perplexity": TOKENIZER,
        "bits_per_byte": ("data",),
    }
    elastic = True
    axes = ("pp", "dp_replicate", "dp_shard", "cp", "tp", "ep")
    cuts_sequences = True
    runs_on_mps = True
