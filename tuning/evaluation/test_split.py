"""The only door to the test split, which the search never sees.

Confirming, averaging and exporting go through it; a test keeps all others out.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from results.averaging import soup
from search_spaces.errors import UserError, suggest
from trainables.base import Split, Trainable
from trainables.config import TrainableConfig

T = TypeVar("T")

ScoreModel = Callable[[Path], dict[str, float]]
"""Metrics of a folder with `model.safetensors`."""


def test_scorer(trainable: Trainable[Any], config: TrainableConfig, cache: Path) -> ScoreModel:
    """A judge of models on the test split.

    Args:
        trainable: of the sweep.
        config: of the trial from which the weights come.
        cache: folder of prepared data.
    """
    return lambda folder: trainable.evaluate(config, folder, Split.TEST, cache)


def make_soup_evaluator(
    trainable: Trainable[Any], config: TrainableConfig, metric: str, mode: str, cache: Path
) -> soup.Evaluator:
    """A judge of averages: example by example, on the selection and the test split."""

    def on(split: Split) -> soup.ExampleScores:
        def examples(folder: Path) -> list[float]:
            return _named(metric, trainable.examples(config, folder, split, cache), trainable)

        return examples

    def recalibrate(folder: Path) -> None:
        trainable.recalibrate(config, folder, cache)

    return soup.Evaluator(metric, mode, on(Split.SELECTION), on(Split.TEST), recalibrate)


def _named(metric: str, scores: dict[str, T], trainable: Trainable[Any]) -> T:
    if metric not in scores:
        raise UserError(
            f"{type(trainable).__name__}.evaluate gives no '{metric}'{suggest(metric, scores)}"
        )
    return scores[metric]
