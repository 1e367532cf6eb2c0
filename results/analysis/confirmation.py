"""Confirmation: the best trials measured again, on data and with seeds that the search never used.

The best of many noisy values is biased (the optimizer's curse; Smith and Winkler 2006).
`results/confirmation.json` has the size of this bias, and the winner of the new measurements.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict, ValidationError

from results.analysis.pareto import cost, mean, rank_front
from results.paths import SweepPaths
from results.records.record_log import write_logged
from search_spaces.files import read_regular

LEVEL = 0.95
_CONFIG = ConfigDict(frozen=True, ser_json_inf_nan="strings")  # null is not read as a number


class Remeasurement(BaseModel):
    """New measurements of one objective of a trial.

    Attributes:
        search: the value by which the search ranked the trial (selection split).
        selection: values on the selection split, one per new seed; empty if the weights of the
            search were evaluated.
        test: values on the test split, one per new seed, or one value of the search's weights.
    """

    model_config = _CONFIG

    search: float
    selection: tuple[float, ...] = ()
    test: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Mean over the seeds on the test split."""
        return mean(self.test)

    @property
    def half_width(self) -> float | None:
        """Half the width of the mean's 95 % t-interval; None for a single value."""
        return half_width(self.test)

    def differs_from(self, other: Remeasurement) -> bool:
        """Whether both have an interval and these do not overlap."""
        widths = [w for w in (self.half_width, other.half_width) if w is not None]
        return len(widths) == 2 and abs(self.mean - other.mean) > sum(widths)


class ConfirmedTrial(BaseModel):
    """New measurements of one trial, by objective."""

    model_config = _CONFIG

    trial: str
    series: dict[str, Remeasurement]

    @property
    def means(self) -> dict[str, float]:
        """Mean over the seeds on the test split, by objective."""
        return {name: one.mean for name, one in self.series.items()}

    def differs_from(self, other: ConfirmedTrial) -> bool:
        """Whether the intervals of the two do not overlap in at least one objective."""
        return any(one.differs_from(other.series[name]) for name, one in self.series.items())


class Confirmation(BaseModel):
    """The content of `confirmation.json`, in the order in which the search ranked the trials.

    Attributes:
        modes: `min` or `max` of each objective; the first objective is that of the leaderboard.
        seeds: new seeds, the same for each trial; empty if the weights of the search were
            evaluated.
        trials: at least one.
        rule, weights: for several objectives; see `results.analysis.pareto.rank_front`.
        judged: whether the values are of the test split. If not, they are what trials with new
            seeds reported, on the selection split.
    """

    model_config = _CONFIG

    modes: dict[str, str]
    seeds: tuple[int, ...]
    trials: tuple[ConfirmedTrial, ...]
    rule: str = "knee"
    weights: dict[str, float] = {}
    judged: bool = True

    @property
    def where(self) -> str:
        """The origin of the values, in words."""
        return "on the test split" if self.judged else "by what the loop reports"

    @property
    def front(self) -> list[ConfirmedTrial]:
        """The non-dominated trials by their means on the test split, best by the rule first.

        Ties are in the order of the search. With one objective, all trials, best first.
        """
        finite = [m for m in self.trials if all(map(math.isfinite, m.means.values()))]
        known = finite or list(self.trials)
        if len(self.modes) == 1:
            ((name, mode),) = self.modes.items()
            return sorted(known, key=lambda m: cost(m.means[name], mode))
        order = rank_front([m.means for m in known], self.modes, self.rule, self.weights)
        return [known[i] for i in order]

    @property
    def winner(self) -> ConfirmedTrial:
        """The first of the front."""
        return self.front[0]

    @property
    def optimism(self) -> dict[str, float]:
        """By how much the search's best values were too good, by objective.

        With new seeds the search's best trial is worse by this amount on the selection split. Empty
        without new seeds.
        """
        first = self.trials[0]
        return {
            name: cost(mean(one.selection) - one.search, mode)
            for name, mode in self.modes.items()
            if (one := first.series[name]).selection
        }

    @property
    def bias_lines(self) -> list[str]:
        """`optimism` in words."""
        lines = []
        for name, amount in self.optimism.items():
            off = f"{abs(amount):.4g} {'better' if amount > 0 else 'worse'} than"
            kind = off if abs(amount) > 1e-9 else "the same as"
            lines.append(f"the search's best {name} was {kind} with fresh seeds on the same split")
        return lines

    @property
    def clear(self) -> bool:
        """Whether the winner's interval overlaps with no other trial's."""
        best = self.winner
        return all(best.differs_from(other) for other in self.trials if other is not best)


def half_width(values: Sequence[float]) -> float | None:
    """Half the width of the 95 % t-interval of the mean, infinite if it or a value is beyond the
    range of floats; None for fewer than two values.
    """
    if len(values) < 2:
        return None
    if not all(map(math.isfinite, values)):
        return math.inf
    from scipy.stats import t

    quantile = float(t.ppf((1 + LEVEL) / 2, len(values) - 1))
    try:
        return quantile * statistics.stdev(values) / math.sqrt(len(values))
    except OverflowError:
        return math.inf


def write(paths: SweepPaths, confirmation: Confirmation) -> None:
    """Write `results/confirmation.json` atomically."""
    write_logged(paths, paths.confirmation, confirmation.model_dump_json(indent=1).encode())


def read(paths: SweepPaths) -> Confirmation | None:
    """The confirmation of a sweep; None if the file is missing or damaged."""
    try:
        return Confirmation.model_validate_json(read_regular(paths.confirmation))
    except (OSError, ValidationError):
        return None
