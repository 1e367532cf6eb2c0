"""The only door to the test split, which the search never sees.

Confirming, averaging and exporting go through it; a test keeps all others out.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from search_spaces.errors import UserError, suggest
from trainables.base import Split, Trainable, TrainableConfig

Judge = Callable[[Path], float]
"""Value of the sweep's metric for a folder with `model.safetensors`."""


def on_test(trainable: Trainable[Any], config: TrainableConfig, metric: str, cache: Path) -> Judge:
    """A judge of models on the test split.

    Args:
        trainable: of the sweep.
        config: of the trial from which the weights come, or the first of several.
        metric: that is reported; the judge raises `UserError` when `evaluate` does not give it.
        cache: folder of prepared data.
    """

    def judge(folder: Path) -> float:
        scores = trainable.evaluate(config, folder, Split.TEST, cache)
        if metric not in scores:
            raise UserError(
                f"{type(trainable).__name__}.evaluate gives no '{metric}'{suggest(metric, scores)}"
            )
        return scores[metric]

    return judge
