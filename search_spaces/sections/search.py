"""How configurations are proposed."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from search_spaces.sections.base import Section


class SearchSpec(Section):
    """How configurations are proposed."""

    name: Literal["tpe", "random"] = Field("tpe", description="Searcher.")
    startup_trials: int = Field(
        10, ge=1, description="Random trials before the model proposes any (trials)."
    )
    shared_init: bool = Field(
        True,
        description="Trials of equal sizes start from the same weights, so that they can be "
        "averaged: init_seed is the sweep's seed; false: the trial's own.",
    )
