"""`federated` as the registry names it: another trainable's model, trained by clients."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from results.export.exportable import Exportable
from trainables.base import Split, Trainable, TrainableConfig
from trainables.federated.config import FederatedConfig
from trainables.registry import resolve
from trainables.worker import Worker


class Federated(Trainable[FederatedConfig]):
    """Rounds of local training and averaging. Reports once a round; judges as its task does."""

    Config: ClassVar[type[TrainableConfig]] = FederatedConfig
    clock: ClassVar[str] = "round"
    elastic: ClassVar[bool] = True

    def train(self, config: FederatedConfig, worker: Worker) -> None:
        """Train one trial; see the base class."""
        from trainables.federated import loop

        loop.train(config, worker)

    def evaluate(
        self, config: FederatedConfig, weights: Path, split: Split, cache: Path
    ) -> dict[str, float]:
        """As the task; see the base class."""
        return _task(config).evaluate(config.inner, weights, split, cache)

    def examples(
        self, config: FederatedConfig, weights: Path, split: Split, cache: Path
    ) -> dict[str, list[float]]:
        """As the task; see the base class."""
        return _task(config).examples(config.inner, weights, split, cache)

    def initial(self, config: FederatedConfig, target: Path, cache: Path) -> str:
        """As the task; see the base class."""
        return _task(config).initial(config.inner, target, cache)

    def digest(self, config: FederatedConfig, weights: Path, cache: Path) -> str:
        """As the task; see the base class."""
        return _task(config).digest(config.inner, weights, cache)

    def recalibrate(self, config: FederatedConfig, weights: Path, cache: Path) -> None:
        """As the task; see the base class."""
        _task(config).recalibrate(config.inner, weights, cache)

    def exportable(self, config: FederatedConfig, weights: Path, cache: Path) -> Exportable:
        """As the task; see the base class."""
        return _task(config).exportable(config.inner, weights, cache)

    def export_hf(self, config: FederatedConfig, weights: Path, target: Path, cache: Path) -> None:
        """As the task; see the base class."""
        _task(config).export_hf(config.inner, weights, target, cache)


def _task(config: FederatedConfig) -> Trainable[Any]:
    return resolve(config.task)
