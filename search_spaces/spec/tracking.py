"""The `tracking` section."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from search_spaces.spec.base import EnvText, Section


class TrackingSpec(Section):
    """Logging of runs, for comparison."""

    name: Literal["mlflow", "none"] = Field("mlflow", description="Tracker.")
    uri: EnvText | None = Field(
        None, description="Tracking server, ${ENV} allowed; default: a database in storage."
    )
    experiment: str | None = Field(None, description="Experiment's name; default: the sweep's.")
