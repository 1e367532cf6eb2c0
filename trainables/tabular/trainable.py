"""The part of `xgboost` and `lightgbm` that does not depend on the library."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from trainables.base import Split, Trainable
from trainables.tabular.config import EVAL_METRICS, TabularConfig

if TYPE_CHECKING:
    import torch

    from results.export.exportable import Exportable
    from trainables.tabular.boosting import Model
    from trainables.worker import Worker

T = TypeVar("T", bound=TabularConfig)


class Tabular(Trainable[T]):
    """Boosted trees on a table. A step is a round.

    The first of `modules` has the library's `Rounds`, a `Boosting`, and `Trees`, a `Model`.
    """

    metric_names = ("rmse", "mae", "logloss", "auc", "accuracy", "f1", "best_round")
    clock = "round"
    formats = ("booster", "onnx")
    not_averaged = "its models are sums of trees, and have no weights with a mean"

    def reported_metrics(self, config: Mapping[str, Any]) -> tuple[str, ...]:
        """Those of the task, if it is known without the data."""
        if self.Config.problems(config):
            return self.metric_names
        checked: Any = self.Config.model_validate(dict(config))
        task = checked.data.known_task
        best = ("best_round",) if config.get("early_stopping_rounds") is not None else ()
        return (*EVAL_METRICS[task], *best) if task else self.metric_names

    def train(self, config: T, worker: Worker) -> None:
        """See the base class."""
        from trainables.tabular.boosting import begin

        begin(import_module(self.modules[0]).Rounds, config, worker).train(worker)

    def model(self, config: T, folder: Path) -> Model:
        """The model of a checkpoint: all rounds, or up to the best one with early stopping."""
        from trainables.tabular.boosting import BoostingProgress

        done = BoostingProgress.load(folder)
        size = done.best_size if config.early_stopping_rounds else done.size
        found: Model = import_module(self.modules[0]).Trees(folder, size)
        return found

    def evaluate(self, config: T, weights: Path, split: Split, cache: Path) -> dict[str, float]:
        """See the base class."""
        from trainables.data.tables.schema import Schema
        from trainables.data.tables.table import prepare
        from trainables.tabular.boosting import measure

        x, y, row_weights = prepare(config.data, cache).rows(split)
        predicted = self.model(config, weights).predict(x)
        return measure(Schema.load(weights), predicted, y, row_weights)

    def exportable(self, config: T, weights: Path, cache: Path) -> Exportable:
        """Rows as float32 [rows, columns] to values or probabilities [rows, outputs]."""
        import torch

        from results.export.exportable import Exportable
        from trainables.data.tables.schema import Schema
        from trainables.data.tables.table import prepare

        schema, model = Schema.load(weights), self.model(config, weights)

        class Predictor(torch.nn.Module):
            def forward(self, rows: torch.Tensor) -> torch.Tensor:
                found = model.predict(rows.double().numpy())
                return torch.from_numpy(found.reshape(len(rows), -1))

        rows = torch.from_numpy(prepare(config.data, cache).rows(Split.SELECTION)[0].astype("f4"))
        missing = torch.full_like(rows[:2], torch.nan)
        return Exportable(
            Predictor().eval(),
            "rows",
            "predictions",
            (torch.cat([rows[:500], missing]), rows[:1]),
            class_names=schema.classes,
            classes=bool(schema.classes),
            own_format=model,
        )

    def read_rows(self, config: T, weights: Path, file: Path) -> torch.Tensor:
        """See the base class; the file may have more columns than the model."""
        import torch

        from trainables.data.tables.files import read
        from trainables.data.tables.schema import Schema

        table = read(file, config.data)
        return torch.from_numpy(Schema.load(weights).encode(table, str(file)))
