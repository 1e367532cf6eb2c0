"""The trainable `distill`."""

from __future__ import annotations

from trainables.causal_lm.trainable import CausalLM
from trainables.distill.config import DistillConfig
from trainables.training.trainable import TaskTrainable


class Distill(TaskTrainable[DistillConfig]):
    """A causal language model that learns the probabilities of a larger one, its teacher."""

    Config = DistillConfig
    metric_names = CausalLM.metric_names
    elastic = True
    axes = ("dp_replicate", "dp_shard")
    runs_on_mps = True
