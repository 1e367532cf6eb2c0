"""What a searcher may learn from: every trial's curve, also of those that run or are paused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

ScoreCurve = Mapping[int, float]
"""Step of the scheduler's clock to score (higher is better), of the first objective."""


@dataclass(frozen=True)
class TrialEvidence:
    """A trial that was proposed before.

    Attributes:
        params: as Optuna has them; those of its active options only.
        curve: what it reported so far.
        failed: whether it ended without being of use.
        over: whether it will report no more.
    """

    params: Mapping[str, Any]
    curve: ScoreCurve
    failed: bool = False
    over: bool = True


@dataclass(frozen=True)
class Evidence:
    """All that a proposal depends on, beside its seed.

    Attributes:
        space: every parameter, those of all options included.
        levels: steps at which trials are compared, ascending; the last is that of complete ones.
            Empty where no trial is stopped: then its last value counts.
        trials: in the order in which they were proposed.
        number: of the proposal.
        base_seed: of the sweep, the same for all its proposals.
    """

    space: Mapping[str, BaseDistribution] = field(default_factory=dict)
    levels: Sequence[float] = ()
    trials: Sequence[TrialEvidence] = ()
    number: int = 0
    base_seed: int = 0
