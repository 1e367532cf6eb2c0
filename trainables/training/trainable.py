"""A trainable that is a `Task`: its class gives a `Config`, which names the task. No torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from search_spaces.nested import group
from trainables.base import Split, Trainable
from trainables.parts import C

if TYPE_CHECKING:
    from torch import nn

    from results.export.exportable import Exportable
    from trainables.client import Client
    from trainables.training.task import Task
    from trainables.worker import Worker


class TaskTrainable(Trainable[C]):
    """Trains by the loop of `trainables.training.run`; `Config.task_class` is `module:Task`."""

    @property
    def modules(self) -> tuple[str, ...]:  # type: ignore[override]  # others have a class attribute
        """See the base class."""
        task: str = self.Config.task_class  # type: ignore[attr-defined]
        return ("trainables.training.run", task.partition(":")[0])

    def reported_metrics(self, config: Mapping[str, Any]) -> tuple[str, ...]:
        """Also the losses of the named sets of the data."""
        sets = group(group(config.get("data")).get("selection"))
        return (*self.metric_names, *(f"eval_loss/{name}" for name in sets))

    def train(self, config: C, worker: Worker) -> None:
        """See the base class."""
        from trainables.training.run import train
        from trainables.training.task import open_task

        train(open_task(config, worker.cache, worker=worker), worker)

    def evaluate(self, config: C, weights: Path, split: Split, cache: Path) -> dict[str, float]:
        """See the base class."""
        with _evaluation(config, weights, cache) as (task, model):
            return task.evaluate(model, split)

    def examples(
        self, config: C, weights: Path, split: Split, cache: Path
    ) -> dict[str, list[float]]:
        """See the base class."""
        with _evaluation(config, weights, cache) as (task, model):
            return task.examples(model, split)

    def recalibrate(self, config: C, weights: Path, cache: Path) -> None:
        """See the base class."""
        with _evaluation(config, weights, cache) as (task, model):
            task.recalibrate(model, weights)

    def initial(self, config: C, target: Path, cache: Path) -> str:
        """See the base class."""
        from trainables.training.checkpoint import weights_digest
        from trainables.training.task import open_task

        task = open_task(config, cache)
        model = task.new_model()
        task.save(model, target)
        return weights_digest(task.network(model))

    def digest(self, config: C, weights: Path, cache: Path) -> str:
        """See the base class."""
        from trainables.training.checkpoint import weights_digest

        task = _task_of(config, weights, cache)
        return weights_digest(task.network(task.load_model(weights)))

    def exportable(self, config: C, weights: Path, cache: Path) -> Exportable:
        """See the base class."""
        return _task_of(config, weights, cache).exportable(weights)

    def export_hf(self, config: C, weights: Path, target: Path, cache: Path) -> None:
        """See the base class."""
        _task_of(config, weights, cache).export_hf(weights, target)


class TrainedByClients(TaskTrainable[C]):
    """Federated clients can train it too: its task has `groups`."""

    def client(self, config: C, cache: Path) -> Client:
        """See the base class."""
        from trainables.training.client import TaskClient
        from trainables.training.task import open_task

        return TaskClient(open_task(config, cache))


def _task_of(config: Any, weights: Path, cache: Path) -> Task:
    from trainables.training.task import task_of

    return task_of(config, weights, cache)


@contextmanager
def _evaluation(config: Any, weights: Path, cache: Path) -> Iterator[tuple[Task, nn.Module]]:
    """The task on which the weights of a folder were trained, and their model on its device."""
    import torch

    from trainables.runtime.seeding import isolated_rng

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    with isolated_rng(0, 0, device):
        task = _task_of(config, weights, cache)
        yield task, task.to_device(task.load_model(weights), device).eval()
