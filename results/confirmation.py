"""The best trials measured again: on data the search never saw, and with seeds it never saw.

The best of many noisy numbers is too good to be true (the optimiser's curse; Smith and Winkler
2006). `results/confirmation.json` says by how much, and which trial is best when measured anew.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict, ValidationError

from results.files import write_atomic
from results.paths import SweepPaths

LEVEL = 0.95


class Measured(BaseModel):
    """One trial, measured again.

    Attributes:
        trial: its id.
        search_value: by which the search ranked it (selection split).
        selection: values on the selection split, one per fresh seed; empty where the weights of
            the search were evaluated.
        test: values on the test split, one per fresh seed, or one of the search's own weights.
    """

    model_config = ConfigDict(frozen=True)

    trial: str
    search_value: float
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


class Confirmation(BaseModel):
    """What was measured, in the order in which the search ranked it.

    Attributes:
        metric, mode: as in the sweep.
        seeds: fresh ones, the same for each trial; empty where existing weights were evaluated.
        trials: at least one.
    """

    model_config = ConfigDict(frozen=True)

    metric: str
    mode: str
    seeds: tuple[int, ...]
    trials: tuple[Measured, ...]

    @property
    def winner(self) -> Measured:
        """The best mean on the test split; of equal ones the search's choice."""
        sign = 1 if self.mode == "min" else -1
        finite = [m for m in self.trials if math.isfinite(m.mean)]
        return min(finite or self.trials, key=lambda m: sign * m.mean)

    @property
    def optimism(self) -> float | None:
        """How much too good the search's best number was: what its winner gets on the same split
        with fresh seeds is worse by this much. None without fresh seeds.
        """
        first = self.trials[0]
        if not first.selection:
            return None
        sign = 1 if self.mode == "min" else -1
        return sign * (statistics.fmean(first.selection) - first.search_value)

    @property
    def clear(self) -> bool:
        """Whether the winner's interval lies apart from every other's."""
        best = self.winner
        mine = best.half_width
        others = [m for m in self.trials if m is not best]
        widths = [m.half_width for m in others]
        if mine is None or any(w is None for w in widths):
            return not others
        gaps = zip(others, widths, strict=True)
        return all(abs(m.mean - best.mean) > mine + (w or 0.0) for m, w in gaps)


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
