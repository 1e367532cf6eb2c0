"""The trainable `distill`."""

from __future__ import annotations

from trainables.base import Trainable
from trainables.causal_lm.trainable import CausalLM
from trainables.distill.config import DistillConfig


class Distill(Trainable[DistillConfig]):
    """A causal language model that learns the probabilities of a larger one, its teacher."""

    Config = DistillConfig
    implementation = (
        "trainables.distill.loop",
        "trainables.causal_lm.evaluation",
        "trainables.causal_lm.export",
    )
    metric_names = CausalLM.metric_names
    elastic = True
    axes = ("dp_replicate", "dp_shard")
    runs_on_mps = True
