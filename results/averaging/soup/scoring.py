"""Scores of models on examples, whether an average is significantly better, and `soup.json`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from search_spaces.errors import UserError

Z = 1.959964
"""Standard errors on each side of a 95 % interval (normal approximation)."""

ExampleScores = Callable[[Path], Sequence[float]]
"""Returns the metric of a model folder for each example of a split, always in the same order.

It is called repeatedly with the same folder and other weights in it.
"""


@dataclass(frozen=True)
class Evaluator:
    """Scores models on two splits.

    Attributes:
        mode: `min` or `max`.
        selection: on the data that the search used; decides which models to add.
        test: on data that influenced no decision.
        recalibrate: recomputes statistics that are not learned (BatchNorm's) for the weights in a
            folder, if the model has any.
    """

    metric: str
    mode: str
    selection: ExampleScores
    test: ExampleScores
    recalibrate: Callable[[Path], None] = lambda _: None

    @property
    def sign(self) -> float:
        """Factor that turns the metric into a score where more is better."""
        return 1.0 if self.mode == "max" else -1.0

    def rank(self, folder: Path, label: str) -> float:
        """Score on the selection split; more is better.

        Raises:
            UserError: it is not finite.
        """
        score = self.sign * _mean(self.selection(folder))
        if not math.isfinite(score):
            raise UserError(
                f"{label}: its '{self.metric}' on the selection split is {self.sign * score}, so "
                "no comparison is possible"
            )
        return score


class Score(BaseModel):
    """A metric on the test split: mean over the examples and its standard error (None: unknown)."""

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
    """Advantage of one model over another, from the differences example by example."""

    @property
    def is_significant(self) -> bool:
        """Whether its 95 % interval lies above zero."""
        return self.error is not None and self.mean > Z * self.error


def score(examples: Sequence[float]) -> Score:
    """Mean and standard error of one model."""
    return Score(mean=_mean(examples), error=_error(examples))


def gain(examples: Sequence[float], over: Sequence[float], sign: float) -> Gain:
    """Paired difference of two models on the same examples; positive is better."""
    pairs = [sign * (a - b) for a, b in zip(examples, over, strict=True)]
    return Gain(mean=_mean(pairs), error=_error(pairs))


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if all(map(math.isfinite, values)) else math.nan


def _error(values: Sequence[float]) -> float | None:
    """Standard error of the mean; None for fewer than two values, or if one is not finite."""
    count, mean = len(values), _mean(values)
    if count < 2 or math.isnan(mean):
        return None
    return math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (count - 1) / count)


SOUP_FILE = "soup.json"


class Soup(BaseModel):
    """The content of `soup.json`.

    Attributes:
        metric: by which models were compared.
        members: labels of the candidates that are in the soup.
        single: label of the candidate that is best on the selection split.
        candidates: for each candidate considered: label, value, checkpoint, SHA-256, share, and the
            digest of the weights from which it started.
        scores: on the test split, of `single`, `uniform`, `greedy`, and the method.
        gain: of the soup over the single candidate.
        promoted: whether the gain is significant.
        dtype: format of the floats; None keeps the format of each tensor.
        rank_loss: part of the LoRA updates' norm that the rank could not hold.
        force: whether models of different or unknown starts were allowed.
    """

    model_config = ConfigDict(frozen=True, ser_json_inf_nan="strings")

    metric: str = ""
    method: str
    options: dict[str, Any]
    members: tuple[str, ...]
    single: str
    candidates: tuple[dict[str, Any], ...]
    scores: dict[str, Score]
    gain: Gain
    promoted: bool
    dtype: str | None = None
    rank_loss: float | None = None
    force: bool = False

    @property
    def trial_id(self) -> str:
        """The trial whose configuration the model has."""
        return self.members[0].partition("@")[0]


def read_soup(folder: Path) -> Soup:
    """Read the record of a soup.

    Raises:
        UserError: the folder holds no soup.
    """
    try:
        return Soup.model_validate_json((folder / SOUP_FILE).read_bytes())
    except (OSError, ValidationError) as e:
        raise UserError(f"{folder}: no soup ({SOUP_FILE} is missing or damaged)") from e
