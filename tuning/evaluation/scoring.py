"""The only access to the test split, which the search never sees.

Confirmation, averaging and export use it. A test checks that no other module does.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from results.averaging.soup.scoring import Evaluator
from results.checkpoints.streaming_hash import hash_file
from search_spaces.errors import UserError, suggest
from trainables.base import Split, Trainable
from trainables.config import TrainableConfig
from tuning.evaluation.progress import TrainingProgress

ScoreModel = Callable[[Path], dict[str, float]]
"""Returns the metrics of the model in a folder with `model.safetensors`."""


def make_test_scorer(trainable: Trainable[Any], config: TrainableConfig, cache: Path) -> ScoreModel:
    """A function that evaluates models on the test split, with a trial's configuration."""
    return lambda folder: trainable.evaluate(config, folder, Split.TEST, cache)


def make_soup_evaluator(
    trainable: Trainable[Any],
    config: TrainableConfig,
    metric: str,
    mode: str,
    cache: Path,
    progress: TrainingProgress,
) -> Evaluator:
    """An evaluator of averages: the metric of each example of the selection and the test split.

    Equal weights are evaluated once: an average of one model is that model.
    """
    known: dict[tuple[Split, frozenset[str]], list[float]] = {}

    def examples(split: Split, folder: Path) -> list[float]:
        key = split, frozenset(hash_file(f).sha256 for f in folder.glob("*.safetensors"))
        if key not in known:
            scores = trainable.examples(config, folder, split, cache)
            if metric not in scores:
                hint = suggest(metric, scores)
                raise UserError(f"{type(trainable).__name__}.evaluate returns no '{metric}'{hint}")
            known[key] = scores[metric]
        progress.step(f"evaluated a model on the {split} split")
        return known[key]

    return Evaluator(
        metric,
        mode,
        partial(examples, Split.SELECTION),
        partial(examples, Split.TEST),
        lambda folder: trainable.recalibrate(config, folder, cache),
    )
