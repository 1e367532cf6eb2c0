"""Average models of a sweep, and compare the average with the best of them on the test split."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from results.averaging.soup import Candidate, Soup, make_soup
from results.averaging.soup.candidates import WEIGHTS
from results.checkpoints.streaming_hash import hash_file
from results.paths import SweepPaths
from results.records.trial import read_trial
from search_spaces.spec.sweep import SweepSpec
from trainables.base import Trainable
from tuning.evaluation.load_model import config_of, trainable_of
from tuning.evaluation.soup_request import ModelChoice, SoupRequest, soup_name
from tuning.evaluation.test_split import make_soup_evaluator


def average_models(
    paths: SweepPaths,
    spec: SweepSpec,
    choice: ModelChoice,
    request: SoupRequest,
    name: str | None = None,
) -> tuple[Soup, Path]:
    """Average the chosen models.

    Args:
        paths, spec: of the sweep.
        choice, request: the models, and the settings.
        name: of the soup; default: from the method and the choice.

    Returns:
        The soup, and its folder.

    Raises:
        UserError: too few models, or settings that do not fit them.
    """
    trainable = trainable_of(spec, "average")
    models, label = choice.candidates(paths, spec, trainable.models)
    config = config_of(spec, trainable, read_trial(paths.trial(models[0].trial_id)))
    cache = paths.storage.cache
    name = soup_name(name or f"{request.method.name()}-{label}")
    evaluator = make_soup_evaluator(trainable, config, spec.metric, spec.mode, cache)
    with TemporaryDirectory(prefix=".average.", dir=paths.root) as scratch:
        models = [_merged(m, paths, spec, trainable, Path(scratch)) for m in models]
        recipe = request.recipe(models, spec, trainable, config, cache)
        return make_soup(paths, name, models, evaluator, recipe), paths.soup(name)


def _merged(
    model: Candidate, paths: SweepPaths, spec: SweepSpec, trainable: Trainable[Any], scratch: Path
) -> Candidate:
    """The candidate; one that holds an adapter gets the whole model, in a folder of `scratch`."""
    if not model.is_adapter:
        return model
    config = config_of(spec, trainable, read_trial(paths.trial(model.trial_id)))
    folder = scratch / model.label
    folder.mkdir()
    trainable.export_hf(config, model.folder, folder, paths.storage.cache)
    return replace(model, merged=folder, sha256=hash_file(folder / WEIGHTS).sha256)
