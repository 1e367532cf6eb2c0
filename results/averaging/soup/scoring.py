"""Whether an average is better than the best single model, by more than the evaluation can err."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from search_spaces.errors import UserError

Z = 1.959964
"""Standard errors on each side of a 95 % interval (normal approximation)."""

Examples = Callable[[Path], Sequence[float]]
"""The metric of a model folder for each example of a split, always in the same order. The same
folder comes again with other weights."""


@dataclass(frozen=True)
class Evaluator:
    """How models are judged.

    Attributes:
        metric: what is compared.
        mode: `min` or `max`.
        selection: on data by which the search chose too; which models to add is decided here.
        test: on data that nothing was chosen by.
        recalibrate: brings statistics that are not learned (BatchNorm's) up to date with the
            weights in a folder, where the model has any.
    """

    metric: str
    mode: str
    selection: Examples
    test: Examples
    recalibrate: Callable[[Path], None] = lambda _: None

    @property
    def sign(self) -> float:
        """Makes more the better."""
        return 1.0 if self.mode == "max" else -1.0

    def rank(self, folder: Path, label: str) -> float:
        """Score on the selection split: more is better.

        Raises:
            UserError: it is not finite.
        """
        score = self.sign * _mean(self.selection(folder))
        if not math.isfinite(score):
            raise UserError(
                f"{label}: its '{self.metric}' on the selection split is {self.sign * score}, so "
                "nothing can be compared with it"
            )
        return score


class Score(BaseModel):
    """A metric on the test split: mean over examples, and its standard error (None: unknown)."""

    model_config = ConfigDict(frozen=True, ser_json_inf_nan="strings")

    mean: float
    error: float | None

    @property
    def interval(self) -> tuple[float, float] | None:
        """95 % confidence interval."""
        if self.error is None:
            return None
        return self.mean - Z * self.error, self.mean + Z * self.error


class Gain(Score):
    """How much better one model is than another, judged on the same examples pair by pair."""

    @property
    def certain(self) -> bool:
        """Whether it is more than the evaluation's own error."""
        return self.error is not None and self.mean > Z * self.error


def score(examples: Sequence[float]) -> Score:
    """Mean and standard error."""
    return Score(mean=_mean(examples), error=_error(examples))


def gain(examples: Sequence[float], over: Sequence[float], sign: float) -> Gain:
    """Paired difference of two models on the same examples; positive is better."""
    pairs = [sign * (a - b) for a, b in zip(examples, over, strict=True)]
    return Gain(mean=_mean(pairs), error=_error(pairs))


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if all(map(math.isfinite, values)) else math.nan


def _error(values: Sequence[float]) -> float | None:
    """Standard error of the mean; None for fewer than two values, or values without meaning."""
    count, mean = len(values), _mean(values)
    if count < 2 or math.isnan(mean):
        return None
    return math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (count - 1) / count)
