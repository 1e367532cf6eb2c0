"""The trainable `federated`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainables.base import Split, Trainable
from trainables.federated.config import FederatedConfig
from trainables.registry import resolve
from trainables.training.communication.config import METRIC_NAMES
from trainables.worker import Worker

if TYPE_CHECKING:
    from results.export.exportable import Exportable


class Federated(Trainable[FederatedConfig]):
    """Clients train another trainable's model, and a server averages it; one report per round."""

    Config = FederatedConfig
    metric_names = ("train_loss", "clients")
    clock = "round"
    elastic = True
    modules = ("trainables.federated.loop",)

    def reported_metrics(self, config: Mapping[str, Any]) -> tuple[str, ...]:
        """Those of the task, and of a round; see the base class."""
        task = resolve(str(config.get("task", FederatedConfig.model_fields["task"].default)))
        names = dict.fromkeys((*task.metric_names, *self.metric_names))
        return tuple(name for name in names if name not in (*METRIC_NAMES, "samples_seen"))

    def train(self, config: FederatedConfig, worker: Worker) -> None:
        """See the base class."""
        from trainables.federated.loop import train

        train(config, worker)

    def evaluate(
        self, config: FederatedConfig, weights: Path, split: Split, cache: Path
    ) -> dict[str, float]:
        """As the task does, like all that follows."""
        return resolve(config.task).evaluate(config.inner, weights, split, cache)

    def examples(
        self, config: FederatedConfig, weights: Path, split: Split, cache: Path
    ) -> dict[str, list[float]]:
        """See the base class."""
        return resolve(config.task).examples(config.inner, weights, split, cache)

    def initial(self, config: FederatedConfig, target: Path, cache: Path) -> str:
        """See the base class."""
        return resolve(config.task).initial(config.inner, target, cache)

    def digest(self, config: FederatedConfig, weights: Path, cache: Path) -> str:
        """See the base class."""
        return resolve(config.task).digest(config.inner, weights, cache)

    def recalibrate(self, config: FederatedConfig, weights: Path, cache: Path) -> None:
        """See the base class."""
        resolve(config.task).recalibrate(config.inner, weights, cache)

    def exportable(self, config: FederatedConfig, weights: Path, cache: Path) -> Exportable:
        """See the base class."""
        return resolve(config.task).exportable(config.inner, weights, cache)

    def export_hf(self, config: FederatedConfig, weights: Path, target: Path, cache: Path) -> None:
        """See the base class."""
        resolve(config.task).export_hf(config.inner, weights, target, cache)
