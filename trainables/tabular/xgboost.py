"""The trainable `xgboost`. The library is imported when it trains."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from trainables.base import Split
from trainables.data.bad_rows import first_line
from trainables.data.tables.config import Task
from trainables.data.tables.files import Array
from trainables.data.tables.schema import Schema
from trainables.tabular.boosting import Boosting, Model, Start, by_class
from trainables.tabular.config import TabularConfig, params_problems
from trainables.tabular.trainable import Tabular

_ALIASES = {
    "eta": "learning_rate",
    "alpha": "reg_alpha",
    "lambda": "reg_lambda",
    "min_split_loss": "gamma",
}
_SET_BY_US = re.compile(
    r"name|version|specified_updater|updater\w*|process_type|refresh_leaf|num_(?!parallel_tree)\w+"
    r"|seed\w*|random_state|nthread|n_jobs|device|fail_on_\w+|validate_parameters|objective|metrics"
    r"|disable_default_eval_metric"
)
FILE = "model.ubj"


class XGBoostConfig(TabularConfig):
    """Hyperparameters of XGBoost, with its defaults."""

    library: ClassVar[str] = "xgboost"

    objective: Literal[
        "reg:squarederror",
        "reg:squaredlogerror",
        "reg:pseudohubererror",
        "reg:absoluteerror",
        "reg:quantileerror",
        "reg:gamma",
        "reg:tweedie",
        "count:poisson",
    ] = Field(
        "reg:squarederror",
        description="of regression; classes have binary:logistic or multi:softprob",
    )
    booster: Literal["gbtree", "dart"] = Field("gbtree", description="dart drops trees at random")
    tree_method: Literal["hist", "approx"] = Field("hist", description="how splits are found")
    max_depth: int = Field(6, ge=0, description="levels of a tree; 0: no limit")
    max_leaves: int = Field(0, ge=0, description="leaves of a tree; 0: no limit")
    grow_policy: Literal["depthwise", "lossguide"] = Field(
        "depthwise", description="split the nodes nearest to the root, or those that gain most"
    )
    gamma: float = Field(0.0, ge=0, description="least gain of a split")
    max_delta_step: float = Field(0.0, ge=0, description="largest value of a leaf; 0: no limit")

    def library_params(self, task: Task, classes: int) -> dict[str, Any]:
        """Parameters of the library."""
        own: dict[str, Any] = {"objective": self.objective}
        if task != "regression":
            own["objective"] = "binary:logistic" if task == "binary" else "multi:softprob"
        many = {"num_class": classes} if task == "multiclass" else {}
        return {**self.fields, **own, **many, **self.params, "verbosity": 0}

    def wrong_params(self, task: Task) -> list[str]:
        """See the base class."""
        import xgboost

        data = xgboost.DMatrix(np.array([[0.0], [1.0]]), [0.0, 1.0])
        try:
            booster = xgboost.Booster(self.library_params(task, 2), [data])
            booster.update(data, 0)
        except (xgboost.core.XGBoostError, ValueError, TypeError) as e:
            return [f"{first_line(e)}, got {self.params}"]
        names = _names(json.loads(booster.save_config()))
        known = [name for name in names if not _SET_BY_US.fullmatch(name)]
        return params_problems(self.params, known, self.fields, _ALIASES)


class XGBoost(Tabular[XGBoostConfig]):
    """Boosted trees by XGBoost, on Parquet, CSV or a table of scikit-learn."""

    Config = XGBoostConfig
    modules = ("trainables.tabular.boosting", "xgboost")

    def begin(self, start: Start[XGBoostConfig]) -> Boosting:
        """See the base class."""
        return _Boosting(start)

    def load(self, folder: Path, size: int) -> Model:
        """See the base class."""
        return _Model(folder, size)


class _Boosting(Boosting):
    """Rounds of XGBoost, which are the same after a resume.

    What is drawn in a round depends on the seed and the round. The generator of the tree updater is
    in no checkpoint, so each report gets a new updater.
    """

    def __init__(self, start: Start[XGBoostConfig]) -> None:
        import torch
        import xgboost

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
        return int(self._booster.num_boosted_rounds())

    def update(self, number: int) -> None:
        if number > 1 and number % self._every == 1 % self._every:
            for method in ("approx" if self._method == "hist" else "hist", self._method):
                self._booster.set_param("tree_method", method)
                self._booster.save_config()  # applies it
        self._booster.update(self._train, number - 1)

    def predict(self) -> Array:
        return by_class(self._booster.predict(self._selection), self._task)

    def save(self, folder: Path) -> None:
        self._booster.save_model(folder / FILE)


class _Model(Model):
    def __init__(self, folder: Path, size: int) -> None:
        import torch
        import xgboost

        super().__init__(Schema.load(folder))
        whole = xgboost.Booster({"nthread": torch.get_num_threads()})
        whole.load_model(folder / FILE)
        self._booster = whole[:size]

    def predict(self, x: Array) -> Array:
        return by_class(self._booster.predict(_matrix(self.schema, x)), self.schema.task)

    def write(self, folder: Path) -> None:
        self._booster.save_model(folder / FILE)

    def convert(self, types: Any) -> Any:
        from onnxmltools import convert_xgboost

        return convert_xgboost(self._booster, initial_types=types)


def _matrix(schema: Schema, x: Array, y: Array | None = None, weight: Array | None = None) -> Any:
    import xgboost

    types = ["q" if known is None else "c" for known in schema.columns.values()]
    return xgboost.DMatrix(x, y, weight=weight, feature_types=types, enable_categorical=True)


def _names(part: Any) -> Iterator[str]:
    """Names of all parameters in a configuration."""
    for name, value in part.items() if isinstance(part, dict) else enumerate(part):
        if isinstance(value, dict | list):
            yield from _names(value)
        elif isinstance(name, str):
            yield name
