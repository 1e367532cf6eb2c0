"""The trainable `lightgbm`. The library is imported when it trains."""

from __future__ import annotations

import re
from typing import Any, ClassVar, Literal

from pydantic import Field

from trainables.data.bad_rows import first_line
from trainables.data.tables.config import Task
from trainables.tabular.config import TabularConfig, params_problems
from trainables.tabular.trainable import Tabular

_ALIASES = {
    "bagging_fraction": "subsample",
    "bagging_freq": "subsample_freq",
    "feature_fraction": "colsample_bytree",
    "feature_fraction_bynode": "colsample_bynode",
    "min_sum_hessian_in_leaf": "min_child_weight",
    "min_data_in_leaf": "min_child_samples",
    "min_gain_to_split": "min_split_gain",
    "lambda_l1": "reg_alpha",
    "lambda_l2": "reg_lambda",
}
_SET_BY_US = re.compile(
    r"objective|metric|data|valid|num_iterations|num_threads|\w*seed|deterministic|num_class"
    r"|verbosity|early_stopping\w*|first_metric_only|eval_at|categorical_feature|tree_learner"
    r"|num_machines|machine\w*|local_listen_port|time_out|header|\w*_column|two_round|pre_partition"
)
_NOT_RESUMED = ("linear_tree", "use_quantized_grad", "pos_bagging_fraction", "neg_bagging_fraction")
"""Parameters with which the state of a training is more than its trees."""


class LightGBMConfig(TabularConfig):
    """Hyperparameters of LightGBM, with its defaults, under the names that scikit-learn has."""

    library: ClassVar[str] = "lightgbm"

    objective: Literal[
        "regression",
        "regression_l1",
        "huber",
        "fair",
        "poisson",
        "quantile",
        "mape",
        "gamma",
        "tweedie",
    ] = Field("regression", description="of regression; classes have binary or multiclass")
    boosting: Literal["gbdt", "dart", "rf"] = Field("gbdt", description="dart drops trees")
    data_sample_strategy: Literal["bagging", "goss"] = Field(
        "bagging", description="goss: rows with large gradients, and some of the others"
    )
    learning_rate: float = Field(0.1, gt=0, le=1, description="factor of each tree's values")
    num_leaves: int = Field(31, ge=2, le=131072, description="leaves of a tree")
    max_depth: int = Field(-1, ge=-1, description="levels of a tree; -1: no limit")
    min_child_samples: int = Field(20, ge=0, description="least number of rows in a leaf")
    min_child_weight: float = Field(1e-3, ge=0, description="least sum of Hessians in a leaf")
    min_split_gain: float = Field(0.0, ge=0, description="least gain of a split")
    reg_lambda: float = Field(0.0, ge=0, description="L2 penalty of a leaf's value")
    max_bin: int = Field(255, ge=2, description="bins of a column's values")
    subsample_freq: int = Field(1, ge=1, description="rounds between two draws of rows")
    extra_trees: bool = Field(False, description="draw the thresholds of splits at random")

    def library_params(self, task: Task, classes: int) -> dict[str, Any]:
        """Parameters of the library."""
        many = {"num_class": classes} if task == "multiclass" else {}
        objective = self.objective if task == "regression" else task
        fixed = {"objective": objective, "metric": "None", "verbosity": -1, "deterministic": True}
        if not {"force_row_wise", "force_col_wise"} & {*self.params}:
            fixed["force_row_wise"] = True  # the library would measure which one is faster
        bagging = {} if self.subsample < 1 else {"subsample_freq": 0}
        return {**self.fields, **bagging, **many, **self.params, **fixed}

    def wrong_params(self, task: Task) -> list[str]:
        """See the base class."""
        import lightgbm
        import numpy as np

        try:
            params = self.library_params(task, 2)
            data = lightgbm.Dataset(np.array([[0.0], [1.0]]), [0.0, 1.0], params=params)
            text = lightgbm.Booster(params, data).model_to_string()
        except (lightgbm.basic.LightGBMError, ValueError, TypeError) as e:
            return [f"{first_line(e)}, got {self.params}"]
        names = re.findall(r"^\[(\w+): ", text, re.MULTILINE)
        known = [name for name in names if not _SET_BY_US.fullmatch(name)]
        return params_problems(self.params, known, self.fields, _ALIASES)

    @property
    def draws(self) -> bool:
        """Whether rounds draw rows, columns or thresholds."""
        least = min(self.subsample, self.colsample_bytree, self.colsample_bynode)
        return least < 1 or self.extra_trees

    @property
    def resumes_from_trees(self) -> bool:
        """Whether the trees are all of a training's state, if each round has its own seeds."""
        plain = (self.boosting, self.data_sample_strategy) == ("gbdt", "bagging")
        every = self.subsample == 1 or self.subsample_freq == 1
        return plain and every and not any(self.params.get(name) for name in _NOT_RESUMED)


class LightGBM(Tabular[LightGBMConfig]):
    """Boosted trees by LightGBM, on Parquet, CSV or a table of scikit-learn."""

    Config = LightGBMConfig
    modules = ("trainables.tabular.lightgbm_rounds",)
