"""The trainable `federated`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from search_spaces.nested import group
from trainables.base import Trainable
from trainables.causal_lm.trainable import CausalLM
from trainables.federated.config import FederatedConfig
from trainables.registry import resolve
from trainables.training.communication.config import METRIC_NAMES
from trainables.worker import Worker


def _of_task(method: str) -> Any:
    """The method of the task, whose models these are."""

    def call(self: Federated, config: FederatedConfig, *given: Any) -> Any:
        return getattr(resolve(config.task), method)(config.inner, *given)

    return call


class Federated(Trainable[FederatedConfig]):
    """Clients train another trainable's model, and a server averages it; one report per round."""

    Config = FederatedConfig
    metric_names = ("train_loss", "clients")
    metric_depends_on = CausalLM.metric_depends_on  # no other task's metrics do
    clock = "round"
    elastic = True
    modules = ("trainables.federated.loop",)

    def reported_metrics(self, config: Mapping[str, Any]) -> tuple[str, ...]:
        """Those of the task, and of a round; see the base class."""
        task = resolve(str(config.get("task", FederatedConfig.model_fields["task"].default)))
        client = group(config.get("client"))
        names = dict.fromkeys((*task.reported_metrics(client), *self.metric_names))
        return tuple(name for name in names if name not in (*METRIC_NAMES, "samples_seen"))

    def train(self, config: FederatedConfig, worker: Worker) -> None:
        """See the base class."""
        from trainables.federated.loop import train

        train(config, worker)

    def with_seed(self, config: dict[str, Any], seed: int) -> dict[str, Any]:
        """The initial weights are the task's; see the base class."""
        task = resolve(str(config.get("task", FederatedConfig.model_fields["task"].default)))
        return {**config, "client": task.with_seed(dict(group(config.get("client"))), seed)}

    evaluate = _of_task("evaluate")
    examples = _of_task("examples")
    initial = _of_task("initial")
    digest = _of_task("digest")
    recalibrate = _of_task("recalibrate")
    exportable = _of_task("exportable")
    export_hf = _of_task("export_hf")
