"""The trainable `xgboost`. The library is imported when it trains."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, ClassVar, Literal

from pydantic import Field

from trainables.data.bad_rows import first_line
from trainables.data.tables.config import Task
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
        import numpy as np
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
    modules = ("trainables.tabular.xgboost_rounds",)


def _names(part: Any) -> Iterator[str]:
    """Names of all parameters in a configuration."""
    for name, value in part.items() if isinstance(part, dict) else enumerate(part):
        if isinstance(value, dict | list):
            yield from _names(value)
        elif isinstance(name, str):
            yield name
