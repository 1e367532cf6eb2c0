"""The trainable `causal_lm`."""

from __future__ import annotations

from trainables.base import Trainable
from trainables.causal_lm.config import CausalLMConfig
from trainables.common.communication.config import METRIC_NAMES


class CausalLM(Trainable[CausalLMConfig]):
    """A causal language model trained to predict the next token of real text."""

    Config = CausalLMConfig
    implementation = (
        "trainables.causal_lm.loop",
        "trainables.causal_lm.evaluation",
        "trainables.causal_lm.export",
        "trainables.causal_lm.client",
    )
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
    elastic = True
    axes = ("pp", "dp_replicate", "dp_shard", "cp", "tp", "ep")
    cuts_sequences = True
    runs_on_mps = True
