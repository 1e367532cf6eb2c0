"""What a proposal depends on: a seed, and the curve of every trial, also of running ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

ScoreCurve = Mapping[int, float]
"""Step of the scheduler's clock to score (higher is better), of the first objective."""


class ScoreCurves(dict[int, dict[int, float]]):
    """The curve of each trial that has reported, by its number, and which of them have grown.

    Attributes:
        step_seconds: of each such trial, up to its last report.
    """

    def __init__(self) -> None:
        super().__init__()
        self.step_seconds: dict[int, float] = {}
        self._grown = set[int]()

    def add(self, number: int, step: int, score: float, seconds: float = 0.0) -> None:
        """A trial reported, after so many seconds; only its first report of a step counts."""
        self.step_seconds[number] = seconds / max(1, step)
        self.setdefault(number, {}).setdefault(step, score)
        self._grown.add(number)

    def take_grown(self) -> set[int]:
        """Numbers of the trials that have reported since the last call."""
        grown, self._grown = self._grown, set()
        return grown


@dataclass(frozen=True)
class TrialEvidence:
    """An earlier proposal.

    Attributes:
        params: as Optuna stores them; active parameters only.
        curve: its reports so far.
        failed: whether it ended without a usable value.
        over: whether it has ended.
        step_seconds: seconds that it took per step; 0 if that is not known.
        infeasible: whether it violates an outcome constraint.
    """

    params: Mapping[str, Any]
    curve: ScoreCurve
    failed: bool = False
    over: bool = True
    step_seconds: float = 0.0
    infeasible: bool = False


@dataclass(frozen=True)
class Evidence:
    """Everything that a proposal depends on besides its seed.

    Attributes:
        space: every parameter of every option.
        levels: steps at which trials are compared, ascending; the last is `max_t`. Empty if no
            trial is stopped; then the last value of a trial counts.
        trials: in the order of their proposals.
        number: of the proposal.
        base_seed: seed of the sweep, the same for all proposals.
        repeats: whether a sample of every parameter makes a configuration that was proposed before.
    """

    space: Mapping[str, BaseDistribution] = field(default_factory=dict)
    levels: Sequence[float] = ()
    trials: Sequence[TrialEvidence] = ()
    number: int = 0
    base_seed: int = 0
    repeats: Callable[[Mapping[str, Any]], bool] = lambda sampled: False


@lru_cache(8)  # the study and the trial's record ask for the same one
def derive_seed(seed: int, number: int) -> int:
    """An independent 32-bit seed for a trial number of a sweep (numpy's SeedSequence)."""
    return int(np.random.SeedSequence([seed, number]).generate_state(1)[0])
