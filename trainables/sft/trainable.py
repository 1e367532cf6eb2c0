"""The trainable `sft`."""

from __future__ import annotations

from trainables.causal_lm.trainable import CausalLM
from trainables.sft.config import SFTConfig
from trainables.training.trainable import TaskTrainable


class SFT(TaskTrainable[SFTConfig]):
    """A causal language model, from scratch or pretrained, that learns to answer questions."""

    Config = SFTConfig
    metric_names = (
        *(name for name in CausalLM.metric_names if name != "bits_per_byte"),
        "exact_match",
    )
    elastic = True
    axes = ("pp", "dp_replicate", "dp_shard", "cp", "tp")
    cuts_sequences = True
