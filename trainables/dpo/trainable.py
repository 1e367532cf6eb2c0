"""The trainable `dpo`."""

from __future__ import annotations

from trainables.base import Trainable
from trainables.causal_lm.trainable import CausalLM
from trainables.dpo.config import DPOConfig


class DPO(Trainable[DPOConfig]):
    """A causal language model that learns which of two answers is preferred (DPO)."""

    Config = DPOConfig
    implementation = (
        "trainables.dpo.task",
        "trainables.causal_lm.evaluation",
        "trainables.causal_lm.export",
    )
    metric_names = (
        "accuracy",
        "reward_margin",
        "chosen_reward",
        "rejected_reward",
        *(n for n in CausalLM.metric_names if n not in ("perplexity", "bits_per_byte")),
    )
    elastic = True
    runs_on_mps = True
