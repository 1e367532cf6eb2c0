"""The rounds of a trial, and the metrics of its predictions."""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from search_spaces.errors import UserError
from trainables.base import Split
from trainables.data.tables.config import Task
from trainables.data.tables.files import Array
from trainables.data.tables.table import Schema, Table, prepare
from trainables.job import Answer
from trainables.tabular.config import EVAL_METRICS, TabularConfig

if TYPE_CHECKING:
    from trainables.worker import Worker

PROGRESS = "boosting.json"
_OUTPUT = "predictions"
_HIGHER_IS_BETTER = ("auc", "accuracy", "f1")


@dataclass(frozen=True)
class Setup:
    """What training depends on, beside the rounds that are done."""

    config: Any
    table: Table
    seed: int
    threads: int
    gpu: int | None = None


@dataclass
class Progress:
    """Rounds done, and the best of them by the metric of early stopping with its metrics.

    The sizes are those of the model then: LightGBM adds no trees in a round without a split.
    """

    round: int = 0
    best_round: int = 0
    best: dict[str, float] = field(default_factory=dict)
    size: int = 0
    best_size: int = 0

    @classmethod
    def load(cls, folder: Path) -> Progress:
        """That of a checkpoint."""
        return cls(**json.loads((folder / PROGRESS).read_text()))

    def save(self, folder: Path) -> None:
        """Write `boosting.json`."""
        (folder / PROGRESS).write_text(json.dumps(asdict(self)))

    def note(self, metrics: dict[str, float], by: str) -> None:
        """Take the metrics of the newest round."""
        sign = 1 if by in _HIGHER_IS_BETTER else -1
        if not self.best or sign * metrics[by] > sign * self.best[by]:
            self.best, self.best_round, self.best_size = metrics, self.round, self.size


class Boosting(ABC):
    """A training by one library."""

    @property
    @abstractmethod
    def size(self) -> int:
        """Rounds in the model."""

    @abstractmethod
    def update(self, number: int) -> None:
        """Train round `number`, counted from 1."""

    @abstractmethod
    def predict(self) -> Array:
        """Predictions for the selection split by all rounds so far, as `Model.predict`."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write the model of all rounds."""


class Model(ABC):
    """A trained model, of the rounds that count."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema

    @abstractmethod
    def predict(self, x: Array) -> Array:
        """Regression: values [rows]; classes: probabilities [rows, classes]."""

    @abstractmethod
    def write(self, folder: Path) -> None:
        """Write the model in the library's own format."""

    @abstractmethod
    def convert(self, types: Any) -> Any:
        """The model as onnxmltools makes it; `types` are those of its inputs."""

    def save(self, folder: Path) -> None:
        """Write the model, and its columns and classes."""
        self.write(folder)
        self.schema.save(folder)

    def to_onnx(self, columns: int) -> Any:
        """The model with the input `rows`, float32 [rows, columns], and what it predicts."""
        try:
            from onnxmltools.convert.common.data_types import FloatTensorType
        except ImportError as e:
            raise UserError("--to onnx: needs onnxmltools; pip install onnxmltools") from e

        made = self.convert([("rows", FloatTensorType([None, columns]))])
        del made.graph.output[:-1]  # the label, which follows from the probabilities
        (output,) = made.graph.output
        for node in made.graph.node:
            node.output[:] = [_OUTPUT if n == output.name else n for n in node.output]
        output.name = _OUTPUT
        return made


@dataclass
class Run:
    """A trial in training."""

    setup: Setup
    boosting: Boosting
    progress: Progress

    def save(self, folder: Path) -> None:
        """Write a checkpoint."""
        self.boosting.save(folder)
        self.setup.table.schema.save(folder)
        self.progress.save(folder)

    def train(self, worker: Worker) -> None:
        """Train the rounds that are left."""
        config = self.setup.config
        for number in range(self.progress.round + 1, config.rounds + 1):
            self.boosting.update(number)
            worker.heartbeat()
            metrics = self._metrics(number)
            last = number in (config.rounds, self.progress.best_round + self._patience)
            if last or number % config.report_every == 0:
                answer = worker.report(
                    step=number, metrics=metrics, checkpoint=self.save, final=last
                )
                if last or answer is not Answer.CONTINUE:
                    break

    @property
    def _patience(self) -> float:
        return self.setup.config.early_stopping_rounds or math.inf

    def _metrics(self, number: int) -> dict[str, float]:
        """Those to report: with early stopping of the best round, else of this one if it is due."""
        config, done = self.setup.config, self.progress
        done.round, done.size = number, self.boosting.size
        early = config.early_stopping_rounds is not None
        if not early and number % config.report_every and number < config.rounds:
            return {}
        table = self.setup.table
        _, y, weights = table.rows(Split.SELECTION)
        metrics = measure(table.schema, self.boosting.predict(), y, weights)
        if not early:
            return metrics
        done.note(metrics, stops_by(config, table.schema))
        return {**done.best, "best_round": done.best_round}


def begin(
    make: Callable[[Setup, Path | None, int], Boosting], config: TabularConfig, worker: Worker
) -> Run:
    """A trial at its first round, or after those of its newest checkpoint.

    Args:
        make: takes the setup and, to go on, the folder of a checkpoint and its rounds.

    Raises:
        UserError: the table cannot be read, or settings do not fit it.
    """
    import torch

    table = prepare(config.data, worker.cache, worker.heartbeat)
    stops_by(config, table.schema)
    if bad := config.wrong_params(table.schema.task) if config.params else []:
        raise UserError(f"params: {bad[0]}")
    worker.log_dataset(table.content)
    found = worker.resume()
    progress = Progress.load(found.folder) if found else Progress()
    gpu = worker.device.index or 0 if worker.device.type == "cuda" else None
    setup = Setup(config, table, worker.seed, torch.get_num_threads(), gpu)
    boosting = make(setup, found.folder if found else None, progress.round)
    worker.loaded()
    return Run(setup, boosting, progress)


def by_class(found: Array, task: Task) -> Array:
    """What a library predicts, with the probabilities of both classes where it gives one."""
    return np.stack([1 - found, found], axis=1) if task == "binary" else found


def stops_by(config: TabularConfig, schema: Schema) -> str:
    """The metric of early stopping.

    Raises:
        UserError: it is of another task.
    """
    known = EVAL_METRICS[schema.task]
    if config.eval_metric and config.eval_metric not in known:
        raise UserError(f"eval_metric: of a {schema.task} one of {', '.join(known)}")
    return config.eval_metric or known[0]


def measure(
    schema: Schema, predicted: Array, y: Array, weights: Array | None = None
) -> dict[str, float]:
    """The metrics of predictions; rows count by their weights, in `EVAL_METRICS` of the task."""
    each = {
        name: np.average(v, weights=weights) for name, v in rowwise(schema, predicted, y).items()
    }
    if schema.task == "regression":
        rmse = float(np.sqrt(np.average((predicted - y) ** 2, weights=weights)))
        return {"rmse": rmse, "mae": float(each["mae"])}
    from sklearn.metrics import f1_score, roc_auc_score

    binary = schema.task == "binary"
    labels = predicted.argmax(1)
    found = {name: float(value) for name, value in each.items()}
    if binary:
        found["auc"] = float(roc_auc_score(y, predicted[:, 1], sample_weight=weights))
    average = "binary" if binary else "macro"
    found["f1"] = float(
        f1_score(y, labels, average=average, sample_weight=weights, zero_division=0)
    )
    return found


def rowwise(schema: Schema, predicted: Array, y: Array) -> dict[str, Array]:
    """The metrics that are means over rows, of each row."""
    if schema.task == "regression":
        return {"mae": np.abs(predicted - y)}
    at = y.astype(int)
    likelihood = predicted[np.arange(len(at)), at].astype(np.float64)
    right = (predicted.argmax(1) == at).astype(np.float64)
    smallest = np.finfo(predicted.dtype).eps
    return {"logloss": -np.log(np.maximum(likelihood, smallest)), "accuracy": right}
