"""The trainable `dpo`."""

from __future__ import annotations

from trainables.causal_lm.trainable import CausalLM
from trainables.dpo.config import DPOConfig
from trainables.training.trainable import TaskTrainable


class DPO(TaskTrainable[DPOConfig]):
    """A causal language model that learns which of two answers is preferred (DPO)."""

    Config = DPOConfig
    metric_names = (
        "accuracy",
        "reward_margin",
        "chosen_reward",
        "rejected_reward",
        *(n for n in CausalLM.metric_names if n not in ("perplexity", "bits_per_byte")),
    )
    elastic = True
    runs_on_mps = True
