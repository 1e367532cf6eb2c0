"""The rounds of a trial, and the metrics of its predictions."""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from search_spaces.errors import UserError
from trainables.base import Split
from trainables.data.tables.config import Task
from trainables.data.tables.files import Array
from trainables.data.tables.schema import SCHEMA, Schema
from trainables.data.tables.table import DataTable, prepare
from trainables.job import Answer
from trainables.tabular.config import EVAL_METRICS, TabularConfig

if TYPE_CHECKING:
    from trainables.worker import Worker

T = TypeVar("T", bound=TabularConfig)
PROGRESS = "boosting.json"
_OUTPUT = "predictions"
_HIGHER_IS_BETTER = ("auc", "accuracy", "f1")


@dataclass(frozen=True)
class Start(Generic[T]):
    """What a training begins with: to go on, the folder of a checkpoint and its rounds."""

    config: T
    table: DataTable
    worker: Worker
    saved: Path | None
    rounds: int


@dataclass
class BoostingProgress:
    """Rounds done, and the best of them by the metric of early stopping with its metrics.

    The sizes are those of the model then: LightGBM adds no trees in a round without a split.
    """

    round: int = 0
    best_round: int = 0
    best_value: float | None = None
    best: dict[str, float] = field(default_factory=dict)
    size: int = 0
    best_size: int = 0

    @classmethod
    def load(cls, folder: Path) -> BoostingProgress:
        """That of a checkpoint."""
        return cls(**json.loads((folder / PROGRESS).read_text()))

    def save(self, folder: Path) -> None:
        """Write `boosting.json`."""
        (folder / PROGRESS).write_text(json.dumps(asdict(self)))

    def note(self, value: float, by: str) -> bool:
        """Whether the newest round is the best one, with this value of the metric `by`."""
        sign = 1 if by in _HIGHER_IS_BETTER else -1
        best = self.best_value
        if best is not None and (math.isnan(value) or sign * value <= sign * best):
            return False
        self.best_value, self.best_round, self.best_size = value, self.round, self.size
        return True


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
        made.metadata_props.add(key=SCHEMA, value=json.dumps(asdict(self.schema)))
        return made


@dataclass
class BoostingRun:
    """A trial in training: its library's part, and how far it is."""

    config: TabularConfig
    table: DataTable
    boosting: Boosting
    progress: BoostingProgress
    _best: Array | None = field(default=None, init=False)

    def save(self, folder: Path) -> None:
        """Write a checkpoint."""
        self.boosting.save(folder)
        self.table.schema.save(folder)
        self.progress.save(folder)

    def train(self, worker: Worker) -> None:
        """Train the rounds that are left."""
        config, patience = self.config, self.config.early_stopping_rounds or math.inf
        for number in range(self.progress.round + 1, config.rounds + 1):
            self.boosting.update(number)
            self.progress.round, self.progress.size = number, self.boosting.size
            worker.heartbeat()
            if config.early_stopping_rounds:
                self._look(stops_by(config, self.table.schema))
            last = number in (config.rounds, self.progress.best_round + patience)
            if last or number % config.report_every == 0:
                answer = worker.report(
                    step=number, metrics=self._metrics(), checkpoint=self.save, final=last
                )
                if last or answer is not Answer.CONTINUE:
                    break

    def _look(self, by: str) -> None:
        """Keep the predictions of this round if it is the best one."""
        predicted = self.boosting.predict()
        if self.progress.note(self._measure(predicted, by)[by], by):
            self._best = predicted

    def _metrics(self) -> dict[str, float]:
        """Those of this round, or of the best one with early stopping."""
        if not self.config.early_stopping_rounds:
            return self._measure(self.boosting.predict())
        if self._best is not None:
            self.progress.best, self._best = self._measure(self._best), None
        return {**self.progress.best, "best_round": self.progress.best_round}

    def _measure(self, predicted: Array, only: str = "") -> dict[str, float]:
        _, y, weights = self._selection
        return measure(self.table.schema, predicted, y, weights, only)

    @cached_property
    def _selection(self) -> tuple[Array, Array, Array | None]:
        return self.table.rows(Split.SELECTION)


def begin(make: Callable[[Start[T]], Boosting], config: T, worker: Worker) -> BoostingRun:
    """A trial at its first round, or after those of its newest checkpoint.

    Raises:
        UserError: the table cannot be read, or settings do not fit it.
    """
    table = prepare(config.data, worker.cache, worker.heartbeat)
    stops_by(config, table.schema)
    if bad := config.wrong_params(table.schema.task) if config.params else []:
        raise UserError(f"params: {bad[0]}")
    worker.log_dataset(table.content)
    found = worker.resume()
    progress = BoostingProgress.load(found.folder) if found else BoostingProgress()
    saved = found.folder if found else None
    boosting = make(Start(config, table, worker, saved, progress.round))
    worker.loaded()
    return BoostingRun(config, table, boosting, progress)


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
    schema: Schema, predicted: Array, y: Array, weights: Array | None = None, only: str = ""
) -> dict[str, float]:
    """The metrics of predictions; rows count by their weights.

    Args:
        only: the name of one of them; empty: all in `EVAL_METRICS` of the task.
    """
    from sklearn.metrics import f1_score, roc_auc_score

    def mean(values: Array) -> Any:
        return np.average(values, weights=weights)

    def likelihood() -> Array:
        found = predicted[np.arange(len(y)), y.astype(int)]
        smallest = np.finfo(found.dtype).eps
        return np.asarray(np.maximum(found, smallest), dtype=np.float64)

    labels, kind = predicted.argmax(-1), "binary" if schema.task == "binary" else "macro"
    weigh: dict[str, Any] = {"sample_weight": weights}
    functions: dict[str, Callable[[], Any]] = {
        "rmse": lambda: np.sqrt(mean((predicted - y) ** 2)),
        "mae": lambda: mean(np.abs(predicted - y)),
        "logloss": lambda: mean(-np.log(likelihood())),
        "accuracy": lambda: mean(labels == y),
        "auc": lambda: roc_auc_score(y, predicted[:, 1], **weigh),
        "f1": lambda: f1_score(y, labels, average=kind, zero_division=0, **weigh),
    }
    return {n: float(functions[n]()) for n in ([only] if only else EVAL_METRICS[schema.task])}
