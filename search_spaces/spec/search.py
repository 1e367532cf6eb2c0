"""The `search` section."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from search_spaces.spec.base import NamedSection, OneOf

SEARCHERS: dict[str, str] = {
    "mfgp": "tuning.search.models.multi_fidelity_gp:MultiFidelitySampler",
    "tpe": "tuning.search.searchers:tpe",
    "gp": "tuning.search.searchers:gp",
    "cmaes": "tuning.search.searchers:cmaes",
    "nsga2": "tuning.search.searchers:nsga2",
    "nsga3": "tuning.search.searchers:nsga3",
    "sobol": "tuning.search.sequences:SobolSampler",
    "random": "tuning.search.sequences:random",
    "grid": "tuning.search.sequences:grid",
}
"""Name to `"module:Class"` (or a function), which `tuning` resolves on demand. The dict lies here
because its keys are the valid names in a sweep file, and `search_spaces` cannot import `tuning`.
"""


ONE_METRIC = ("mfgp", "cmaes")
"""Searchers that model one objective."""
WEIGH_COST = ("mfgp",)
"""Searchers that can weigh cost."""


class SearchSpec(NamedSection):
    """Proposals of configurations."""

    name: Annotated[str, OneOf(("auto", *SEARCHERS))] = Field(
        "auto", description="Searcher; auto picks one and shows the reason."
    )
    startup_trials: int = Field(
        10, ge=1, description="Random trials before the model proposes any (trials)."
    )
    shared_init: bool = Field(
        True,
        description="Trials of equal sizes start from the same weights, so that they can be "
        "averaged: init_seed is the sweep's seed; false: the trial's own.",
    )
    random_share: float = Field(
        0.2, ge=0, le=1, description="mfgp: share of random proposals beside the model's."
    )
    cost_aware: bool = Field(
        False,
        description="mfgp: weigh improvement by predicted seconds per step, less with more trials.",
    )
    multivariate: bool = Field(
        False, description="tpe: model parameters jointly, in groups that occur together."
    )
    constant_liar: bool = Field(
        False, description="tpe: treat running trials as bad; for many at once without scheduler."
    )
    population: int = Field(20, ge=2, description="nsga2, nsga3: size of a generation (trials).")
    warm_start: list[Annotated[str, Field(min_length=1)]] = Field(
        default_factory=list,
        description="Earlier sweeps that the searcher learns from: names, or folders.",
    )
    reuse: bool = Field(
        False,
        description="Copy a completed trial of those sweeps instead of running it again, if "
        "configuration, seed, code and data are the same.",
    )

    @model_validator(mode="after")
    def _reused_from(self) -> Self:
        if self.reuse and not self.warm_start:
            raise ValueError("reuse needs warm_start, the sweeps whose trials may be reused")
        return self
