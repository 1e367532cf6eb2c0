"""The trainable `grpo`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from search_spaces.nested import group
from trainables.causal_lm.trainable import CausalLM
from trainables.grpo.config import GRPOConfig
from trainables.grpo.rewards import short_name
from trainables.training.trainable import TaskTrainable


class GRPO(TaskTrainable[GRPOConfig]):
    """A causal language model that learns from rewards of its own answers (GRPO)."""

    Config = GRPOConfig
    metric_names = (
        "pass_at_1",
        "pass_at_k",
        "eval_reward",
        "eval_entropy",
        "reward",
        "reward_std",
        "groups_without_spread",
        "completion_length",
        "unfinished",
        "entropy",
        "clip_share",
        "kl",
        *(
            n
            for n in CausalLM.metric_names
            if n not in ("eval_loss", "perplexity", "bits_per_byte")
        ),
    )
    metric_depends_on: ClassVar = {
        **dict.fromkeys(("reward", "eval_reward"), ("weight",)),  # sums of weighted rewards
        "pass_at_k": ("eval_samples",),
    }
    elastic = True
    axes = ("dp_replicate", "dp_shard")
    runs_on_mps = True

    def reported_metrics(self, config: Mapping[str, Any]) -> tuple[str, ...]:
        """With several rewards, each has a metric, too."""
        rewards = group(config.get("rewards"))
        named = (f"reward_{short_name(name)}" for name in rewards) if len(rewards) > 1 else ()
        return (*self.metric_names, *named)
