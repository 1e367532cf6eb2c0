"""What `xgboost` and `lightgbm` share of their hyperparameters, whose table is `data`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from trainables.config import Problem, TrainableConfig
from trainables.data.tables.config import TableConfig, Task

EVAL_METRICS: dict[str, tuple[str, ...]] = {
    "regression": ("rmse", "mae"),
    "binary": ("logloss", "auc", "accuracy", "f1"),
    "multiclass": ("logloss", "accuracy", "f1"),
}
"""Task → its metrics; the first stops a trial early unless `eval_metric` says another."""
_NOT_THE_LIBRARYS = (
    *("data", "rounds", "report_every", "early_stopping_rounds", "eval_metric"),
    *("objective", "params"),
)


class TabularConfig(TrainableConfig):
    """Hyperparameters of boosted trees that both libraries have."""

    library: ClassVar[str]
    """The module, which is also the extra that installs it."""

    data: TableConfig = Field(description="the table")
    rounds: int = Field(200, gt=0, description="boosting rounds at most; a round is a step")
    report_every: int = Field(10, gt=0, description="rounds between two reports")
    early_stopping_rounds: int | None = Field(
        None,
        gt=0,
        description="end after so many rounds in which eval_metric has not improved on the"
        " selection split; reports and the model are then of the best round. null: all rounds",
    )
    eval_metric: Literal["rmse", "mae", "logloss", "auc", "accuracy", "f1"] | None = Field(
        None, description="of early stopping; null: rmse for regression, logloss for classes"
    )
    learning_rate: float = Field(0.3, gt=0, le=1, description="factor of each tree's values")
    subsample: float = Field(1.0, gt=0, le=1, description="fraction of rows, drawn for each round")
    colsample_bytree: float = Field(1.0, gt=0, le=1, description="fraction of columns per tree")
    colsample_bynode: float = Field(1.0, gt=0, le=1, description="fraction of columns per split")
    min_child_weight: float = Field(1.0, ge=0, description="least sum of Hessians in a leaf")
    reg_alpha: float = Field(0.0, ge=0, description="L1 penalty of a leaf's value")
    reg_lambda: float = Field(1.0, ge=0, description="L2 penalty of a leaf's value")
    max_bin: int = Field(256, ge=2, description="bins of a column's values")
    params: dict[str, Any] = Field(
        default_factory=dict,
        description="other parameters of the library, by the names of its documentation; one that"
        " it does not know is refused",
    )

    @property
    def fields(self) -> dict[str, Any]:
        """The parameters of the library that are fields, by their names in both."""
        return self.model_dump(exclude={*_NOT_THE_LIBRARYS})

    def wrong_params(self, task: Task) -> list[str]:
        """What is wrong with `params`, a line each; imports the library."""
        raise NotImplementedError

    @model_validator(mode="after")
    def _is_of_the_task(self) -> TabularConfig:
        task = self.data.known_task
        if task and self.eval_metric and self.eval_metric not in EVAL_METRICS[task]:
            known = ", ".join(EVAL_METRICS[task])
            raise ValueError(f"eval_metric: of a {task} one of {known}, got {self.eval_metric}")
        return self

    def validate_workers(self, workers: Sequence[int]) -> tuple[str, str] | None:
        """A trial has one worker; more threads are `cpus_per_worker`."""
        if list(workers) == [1]:
            return None
        rule = f"must be 1 with trainable: {self.library}; its threads are cpus_per_worker"
        return "", f"{rule}, got {', '.join(map(str, workers))}"

    def missing_files(self) -> list[Problem]:
        """The library, files, and columns as far as a look at the files' heads shows them."""
        if find_spec(self.library) is None:
            needs = f"needs {self.library}; install with: pip install"
            return [((), f"{needs} 'tune-platform[{self.library}]'")]
        from trainables.data.tables.files import problems

        found: list[Problem] = [(("data",), problem) for problem in problems(self.data)]
        task = self.data.known_task  # if it is not known, the worker looks
        bad = self.wrong_params(task) if self.params and task else []
        return found + [(("params",), problem) for problem in bad]

    @classmethod
    def resolve_paths(cls, config: dict[str, Any], folder: Path) -> dict[str, Any]:
        """The configuration with relative paths made absolute: workers run in other folders."""
        if not isinstance(data := config.get("data"), dict):
            return config
        return {**config, "data": TableConfig.resolve_paths(data, folder)}


def params_problems(
    params: Mapping[str, Any],
    known: Iterable[str],
    fields: Iterable[str],
    aliases: Mapping[str, str],
) -> list[str]:
    """What is wrong with the names of `params`, a line each.

    Args:
        known: names that the library knows and that may be set.
        fields: names of hyperparameters.
        aliases: the library's other names of hyperparameters.
    """
    found, names = [], {*known} - {*fields} - {*aliases}
    for name in params:
        if (field := aliases.get(name, name)) in fields:
            found.append(f"'{name}' is the hyperparameter {field}; set it there")
        elif name not in names:
            near = get_close_matches(name, {*names, *fields, *aliases}, 1)
            hint = f" (did you mean '{near[0]}'?)" if near else "; see its documentation"
            found.append(f"the library has no '{name}' that may be set here{hint}")
    return found
