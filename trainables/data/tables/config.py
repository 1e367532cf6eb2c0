"""Where a table is, and what its columns mean."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from trainables.data.text.config import Globs, paths_in

Task = Literal["regression", "binary", "multiclass"]
_TASKS: dict[str, Task] = {
    "breast_cancer": "binary",
    "wine": "multiclass",
    "iris": "multiclass",
    "diabetes": "regression",
}


class TableConfig(BaseModel):
    """The table to train on, a row each example.

    Splits without files of their own get a tenth of the rows each, chosen by their content, so that
    equal rows are in the same split on every machine.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    source: Literal["breast_cancer", "wine", "iris", "diabetes"] | None = Field(
        None, description="a table that scikit-learn contains; null: the files of path"
    )
    path: Globs = Field(
        default_factory=list,
        description="files: .parquet, .csv or .tsv (first line: names; also .gz); globs, or a list",
    )
    selection_path: Globs = Field(
        default_factory=list, description="files of the selection (validation) split, if there are"
    )
    test_path: Globs = Field(default_factory=list, description="files of the test split, if so")
    target: str = Field("target", description="column to predict")
    task: Task | None = Field(
        None,
        description="null: classes for texts and booleans, regression for fractions; whole numbers"
        " may be either, so they need it",
    )
    features: list[str] | None = Field(
        None, description="columns to predict from; null: all others than target, weight, exclude"
    )
    exclude: list[str] = Field(default_factory=list, description="columns that are not read")
    categorical: list[str] = Field(
        default_factory=list, description="columns of categories, beside those of texts"
    )
    weight: str | None = Field(None, description="column with the weight of each row, at least 0")
    missing: list[str] = Field(
        default_factory=list, description="files of text: what means no value, beside NA, null, …"
    )

    @model_validator(mode="after")
    def _has_one_source(self) -> TableConfig:
        if (self.source is None) == (not self.path):
            raise ValueError("needs a source or a path, and not both")
        if self.source and (self.selection_path or self.test_path):
            raise ValueError("selection_path and test_path are of files, not of a source")
        return self

    @property
    def known_task(self) -> Task | None:
        """The task, as far as it is known without the data."""
        return self.task or _TASKS.get(self.source or "")

    @property
    def needed(self) -> list[str]:
        """Names of columns that the table must have."""
        named = [self.target, *(self.features or ()), *self.exclude, *self.categorical]
        return [*named, self.weight] if self.weight else named

    @classmethod
    def resolve_paths(cls, config: dict[str, Any], folder: Path) -> dict[str, Any]:
        """The configuration with relative paths made absolute."""
        return paths_in(config, folder, ("path", "selection_path", "test_path"))
