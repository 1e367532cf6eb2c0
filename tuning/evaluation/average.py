"""Average models of a sweep, and compare the average with the best of them on the test split."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from results.analysis.selection import select_winner
from results.averaging import Method, make_method
from results.averaging.soup.builder import BaseWeights, Recipe, make_soup
from results.averaging.soup.candidates import (
    WEIGHTS,
    Candidate,
    best_trials,
    federated_clients,
    last_checkpoints,
    named_trials,
    parse_weights,
)
from results.averaging.soup.scoring import Soup
from results.checkpoints.streaming_hash import hash_file
from results.checkpoints.tensor_layout import read_layout, start_mismatch, weights_file
from results.paths import SweepPaths
from results.records.trial import read_trial
from results.sweep_folder.folder import find_trial, sweep_argument
from search_spaces.errors import UserError
from search_spaces.spec.sweep import SweepSpec
from tuning.evaluation.load_model import config_of, trainable_of
from tuning.evaluation.progress import PrintLine, TrainingProgress
from tuning.evaluation.scoring import make_soup_evaluator

if TYPE_CHECKING:
    from results.checkpoints.commit import ReadCheckpoints
    from trainables.base import Trainable
    from trainables.config import TrainableConfig

_PROGRESS_S = 5.0
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kMGT]?)B?")
_FACTOR = {"": 1, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}


@dataclass(frozen=True)
class ModelChoice:
    """The models of a sweep to average; without any option the five best trials."""

    top: int | None
    trials: str | None = None
    last: int | None = None
    trial: str | None = None
    clients: str | None = None

    def candidates(
        self, paths: SweepPaths, spec: SweepSpec, models: ReadCheckpoints
    ) -> tuple[list[Candidate], str]:
        """The models, at least two, and a label for the soup's name.

        Args:
            paths, spec: of the sweep.
            models: the checkpoints of a trial; see `Trainable.models`.

        Raises:
            UserError: the options exclude each other, or there are too few models.
        """
        ways = (self.top, self.trials, self.last, self.clients)
        if sum(map(bool, ways)) > 1 or (self.trial and not self.last):
            raise UserError("--top, --trials, --last (with --trial), --clients exclude each other")
        found, label = self._find(paths, spec, models)
        if len(found) < 2:
            raise UserError(
                f"{paths.name}: only {found[0].label} has a finite '{spec.metric}' and an intact "
                "checkpoint, and an average needs two; export it: "
                f"tune export {sweep_argument(paths)}"
            )
        return found, label

    def _find(
        self, paths: SweepPaths, spec: SweepSpec, models: ReadCheckpoints
    ) -> tuple[list[Candidate], str]:
        if self.trials:
            ids = [word.strip() for word in self.trials.split(",") if word.strip()]
            return named_trials(paths, spec, ids, models), "-".join(ids)
        if self.last:
            trial = self.trial or select_winner(paths, spec).line.record.id
            find_trial(paths, trial)
            checkpoints = last_checkpoints(paths, spec, trial, self.last, models)
            return checkpoints, f"{trial}-last-{self.last}"
        if self.clients:
            find_trial(paths, self.clients)
            return federated_clients(paths, self.clients), f"{self.clients}-clients"
        found = best_trials(paths, spec, self.top or 5, models)
        winner = select_winner(paths, spec).line.record.id
        found.sort(key=lambda one: one.trial_id != winner)  # a confirmed winner comes first
        return found, str(len(found))


@dataclass(frozen=True)
class AverageOptions:
    """Settings of an average, as the options of `tune average` have them."""

    method: Method
    weights: str | None = None
    base: Path | None = None
    dtype: str | None = None
    max_memory: str = "64MB"
    max_shard_size: str | None = None
    force: bool = False


def average_models(
    paths: SweepPaths,
    spec: SweepSpec,
    choice: ModelChoice,
    options: AverageOptions,
    name: str | None = None,
    print_line: PrintLine = lambda line: None,
) -> tuple[Soup, Path]:
    """Average the chosen models.

    Args:
        paths, spec: of the sweep.
        choice, options: the models, and the settings.
        name: of the soup; default: from the method and the choice.
        print_line: prints how far it is, every few seconds.

    Returns:
        The soup, and its folder.

    Raises:
        UserError: too few models, or settings that do not fit them.
    """
    trainable, cache = trainable_of(spec, "average"), paths.storage.cache
    models, label = choice.candidates(paths, spec, trainable.models)
    config = config_of(spec, trainable, read_trial(paths.trial(models[0].trial_id)))
    name = name or f"{options.method.name()}-{label}"
    if Path(name).name != name or name.startswith("."):  # it becomes a folder of the sweep
        raise UserError(f"--name: must be a plain name, got '{name}'")
    tests = {"single", "uniform", "greedy", options.method.name()}
    progress = TrainingProgress(2 * len(models) - 1 + len(tests), print_line, _PROGRESS_S)
    evaluator = make_soup_evaluator(trainable, config, spec.metric, spec.mode, cache, progress)
    with TemporaryDirectory(prefix=".average.", dir=paths.root) as scratch:
        models = [_merged(m, paths, spec, trainable, Path(scratch)) for m in models]
        base = _base(trainable, config, cache, options.base, models[0])
        weights, shard = options.weights, options.max_shard_size
        recipe = Recipe(
            options.method,
            parse_weights(models, weights, spec) if weights else None,
            base,
            options.dtype,
            _num_bytes("--max-memory", options.max_memory),
            _num_bytes("--max-shard-size", shard) if shard else None,
            options.force,
        )
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


def method_of(name: str, options: list[str], base: Path | None) -> Method:
    """The averaging method with its `--set` options.

    Raises:
        UserError: no such method or option, or `base` is given to a method that takes none.
    """
    if bad := [option for option in options if "=" not in option]:
        raise UserError(f"--set {bad[0]}: must be KEY=VALUE, like --set density=0.5")
    method = make_method(name, dict(option.partition("=")[::2] for option in options))
    if base is not None and not method.needs_base:
        raise UserError(f"--base: method {name} has no task vectors; task_arithmetic, ties, … do")
    return method


def _num_bytes(option: str, text: str) -> int:
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise UserError(f"{option}: must be a size like 64MB or 5GB, got '{text}'")
    return int(float(found[1]) * _FACTOR[found[2]])


def _base(
    trainable: Trainable[Any],
    config: TrainableConfig,
    cache: Path,
    base: Path | None,
    model: Candidate,
) -> BaseWeights:
    """The weights in the folder `base`; without one, those of step 0, created again.

    Raises:
        UserError: there are none in the folder, or they are of another kind of model.
    """

    def create(folder: Path) -> tuple[Path, str | None]:
        try:
            return folder / WEIGHTS, trainable.initial(config, folder, cache)
        except NotImplementedError as e:
            raise UserError(str(e)) from e

    if base is None:
        return create
    weights = weights_file(base)
    if not weights.is_file():
        raise UserError(f"--base {base}: no {weights.name} in it (other formats are not read)")
    if reason := start_mismatch(read_layout(model.weights), read_layout(weights)):
        raise UserError(f"--base {base}: {model.label} cannot have started from it: {reason}")

    def read(_: Path) -> tuple[Path, str | None]:
        try:
            return weights, trainable.digest(config, base, cache)
        except NotImplementedError:
            return weights, None

    return read
