"""Rounds and models of XGBoost, for `trainables.tabular.xgboost`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import xgboost

from trainables.base import Split
from trainables.data.tables.files import Array
from trainables.data.tables.schema import Schema
from trainables.tabular.boosting import Boosting, Model, Start, by_class

FILE = "model.ubj"


class Rounds(Boosting):
    """Rounds of XGBoost, which are the same after a resume.

    What is drawn in a round depends on the seed and the round. The generator of the tree updater is
    in no checkpoint, so each report gets a new updater.
    """

    def __init__(self, start: Start[Any]) -> None:
        config, table, worker = start.config, start.table, start.worker
        schema = table.schema
        self._task = schema.task
        self._method, self._every = config.tree_method, config.report_every
        self._train, self._selection = (
            _matrix(schema, *table.rows(split)) for split in (Split.TRAIN, Split.SELECTION)
        )
        params = {
            **config.library_params(schema.task, len(schema.classes)),
            "seed": worker.seed % 2**31,
            "seed_per_iteration": True,
            "nthread": torch.get_num_threads(),
            "device": str(worker.device) if worker.device.type == "cuda" else "cpu",
        }
        self._booster = xgboost.Booster(params, [self._train, self._selection])
        if start.saved is not None:
            self._booster.load_model(start.saved / FILE)

    @property
    def size(self) -> int:
        """See the base class."""
        return int(self._booster.num_boosted_rounds())

    def update(self, number: int) -> None:
        """See the base class."""
        if number > 1 and number % self._every == 1 % self._every:
            for method in ("approx" if self._method == "hist" else "hist", self._method):
                self._booster.set_param("tree_method", method)
                self._booster.save_config()  # applies it
        self._booster.update(self._train, number - 1)

    def predict(self) -> Array:
        """See the base class."""
        return by_class(self._booster.predict(self._selection), self._task)

    def save(self, folder: Path) -> None:
        """See the base class."""
        self._booster.save_model(folder / FILE)


class Trees(Model):
    """The first `size` rounds of a checkpoint's model."""

    def __init__(self, folder: Path, size: int) -> None:
        super().__init__(Schema.load(folder))
        whole = xgboost.Booster({"nthread": torch.get_num_threads()})
        whole.load_model(folder / FILE)
        self._booster = whole[:size]

    def predict(self, x: Array) -> Array:
        """See the base class."""
        return by_class(self._booster.predict(_matrix(self.schema, x)), self.schema.task)

    def write(self, folder: Path) -> None:
        """See the base class."""
        self._booster.save_model(folder / FILE)

    def convert(self, types: Any) -> Any:
        """See the base class."""
        from onnxmltools import convert_xgboost

        return convert_xgboost(self._booster, initial_types=types)


def _matrix(schema: Schema, x: Array, y: Array | None = None, weight: Array | None = None) -> Any:
    types = ["q" if known is None else "c" for known in schema.columns.values()]
    return xgboost.DMatrix(x, y, weight=weight, feature_types=types, enable_categorical=True)
