"""The best trials measured again: on data the search never saw, and with seeds it never saw.

The best of many noisy numbers is too good to be true (the optimiser's curse; Smith and Winkler
2006). `results/confirmation.json` says by how much, and which trial is best when measured anew.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict, ValidationError

from results.analysis.pareto import rank_front
from results.paths import SweepPaths
from results.storage.atomic import write_atomic

LEVEL = 0.95


class Remeasurement(BaseModel):
    """One objective of a trial, measured again.

    Attributes:
        search: by which the search ranked the trial (selection split).
        selection: values on the selection split, one per fresh seed; empty where the weights of
            the search were evaluated.
        test: values on the test split, one per fresh seed, or one of the search's own weights.
    """

    model_config = ConfigDict(frozen=True)

    search: float
    selection: tuple[float, ...] = ()
    test: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Mean over the seeds on the test split."""
        return statistics.fmean(self.test)

    @property
    def half_width(self) -> float | None:
        """Of the t-interval around the mean, at 95 %; None for a single value."""
        return half_width(self.test)


class ConfirmedTrial(BaseModel):
    """One trial, measured again.

    Attributes:
        trial: its id.
        series: of each objective.
    """

    model_config = ConfigDict(frozen=True)

    trial: str
    series: dict[str, Remeasurement]

    @property
    def means(self) -> dict[str, float]:
        """Of each objective, the mean over the seeds on the test split."""
        return {name: one.mean for name, one in self.series.items()}

    def differs_from(self, other: ConfirmedTrial) -> bool:
        """Whether the intervals of the two lie apart, in one objective at least."""
        return any(
            _intervals_disjoint(one, other.series[name]) for name, one in self.series.items()
        )


class Confirmation(BaseModel):
    """What was measured, in the order in which the search ranked it.

    Attributes:
        modes: `min` or `max` of each objective; the first is the one of leaderboards.
        seeds: fresh ones, the same for each trial; empty where existing weights were evaluated.
        trials: at least one.
        rule, weights: of several objectives; see `results.analysis.pareto.rank_front`.
        judged: whether the values are of the test split; else they are what was reported with fresh
            seeds, on the split of the search.
    """

    model_config = ConfigDict(frozen=True)

    modes: dict[str, str]
    seeds: tuple[int, ...]
    trials: tuple[ConfirmedTrial, ...]
    rule: str = "knee"
    weights: dict[str, float] = {}
    judged: bool = True

    @property
    def where(self) -> str:
        """What was measured, in words."""
        return "on the test split" if self.judged else "by what the loop reports"

    @property
    def front(self) -> list[ConfirmedTrial]:
        """The trials that no other is better than in all objectives, by their means on the test
        split; best by the rule first, of equal ones the search's choice.

        With one objective all trials, best first.
        """
        finite = [m for m in self.trials if all(map(math.isfinite, m.means.values()))]
        known = finite or list(self.trials)
        if len(self.modes) == 1:
            ((name, mode),) = self.modes.items()
            sign = 1 if mode == "min" else -1
            return sorted(known, key=lambda m: sign * m.means[name])
        order = rank_front([m.means for m in known], self.modes, self.rule, self.weights)
        return [known[i] for i in order]

    @property
    def winner(self) -> ConfirmedTrial:
        """The first of the front."""
        return self.front[0]

    @property
    def optimism(self) -> dict[str, float]:
        """How much too good the search's best numbers were: what its winner gets on the same split
        with fresh seeds is worse by this much. Empty without fresh seeds.
        """
        first = self.trials[0]
        return {
            name: (1 if mode == "min" else -1) * (statistics.fmean(one.selection) - one.search)
            for name, mode in self.modes.items()
            if (one := first.series[name]).selection
        }

    @property
    def clear(self) -> bool:
        """Whether the winner's interval lies apart from every other's."""
        best = self.winner
        return all(best.differs_from(other) for other in self.trials if other is not best)


def _intervals_disjoint(one: Remeasurement, other: Remeasurement) -> bool:
    widths = one.half_width, other.half_width
    known = [w for w in widths if w is not None]
    return len(known) == 2 and abs(one.mean - other.mean) > sum(known)


def half_width(values: Sequence[float]) -> float | None:
    """Half the width of Student's t-interval for the mean (95 %); None for fewer than two."""
    if len(values) < 2:
        return None
    from scipy.stats import t

    quantile = float(t.ppf((1 + LEVEL) / 2, len(values) - 1))
    return quantile * statistics.stdev(values) / math.sqrt(len(values))


def write(paths: SweepPaths, confirmation: Confirmation) -> None:
    """Write `results/confirmation.json` atomically."""
    write_atomic(paths.confirmation, confirmation.model_dump_json(indent=1).encode())


def read(paths: SweepPaths) -> Confirmation | None:
    """The confirmation of a sweep; None without one, or where the file is damaged."""
    try:
        return Confirmation.model_validate_json(paths.confirmation.read_bytes())
    except (OSError, ValidationError):
        return None
