"""The options of `tune average`: the models to average, and the settings."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from results.analysis.selection import select_winner
from results.averaging import make_method, soup
from results.averaging.soup import Recipe
from results.averaging.soup.candidates import WEIGHTS
from results.checkpoints.tensor_layout import read_layout, start_mismatch, weights_file
from results.sweep_folder.folder import find_trial, sweep_argument
from search_spaces.errors import UserError

if TYPE_CHECKING:
    from results.averaging import Method
    from results.averaging.soup import BaseWeights, Candidate
    from results.checkpoints.commit import ReadCheckpoints
    from results.paths import SweepPaths
    from search_spaces.spec.sweep import SweepSpec
    from trainables.base import Trainable
    from trainables.config import TrainableConfig

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kMGT]?)B?")
_FACTOR = {"": 1, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}


@dataclass(frozen=True)
class ModelChoice:
    """The models of a sweep to average; `top` applies if no other option is given."""

    top: int
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
        named = {"trials": self.trials, "last": self.last, "clients": self.clients}
        if sum(map(bool, named.values())) > 1 or (self.trial and not self.last):
            raise UserError("--trials, --last (with --trial) and --clients exclude each other")
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
        of = paths, spec.metric
        if self.trials:
            ids = [word.strip() for word in self.trials.split(",") if word.strip()]
            return soup.named_trials(*of, spec.mode, ids, models), "-".join(ids)
        if self.last:
            trial = self.trial or select_winner(paths, spec).line.record.id
            find_trial(paths, trial)
            checkpoints = soup.last_checkpoints(*of, trial, self.last, models)
            return checkpoints, f"{trial}-last-{self.last}"
        if self.clients:
            find_trial(paths, self.clients)
            return soup.federated_clients(paths, self.clients), f"{self.clients}-clients"
        found = soup.best_trials(*of, spec.mode, self.top, models)
        winner = select_winner(paths, spec).line.record.id
        found.sort(key=lambda one: one.trial_id != winner)  # a confirmed winner comes first
        return found, str(len(found))


@dataclass(frozen=True)
class SoupRequest:
    """Settings of an average, as given on the command line."""

    method: Method
    weights: str | None
    base: Path | None
    dtype: str | None
    max_memory: str
    max_shard_size: str | None
    force: bool

    def recipe(
        self,
        models: list[Candidate],
        spec: SweepSpec,
        trainable: Trainable[Any],
        config: TrainableConfig,
        cache: Path,
    ) -> Recipe:
        """The recipe for these models.

        Raises:
            UserError: a size or the weights do not parse, or `base` does not fit the models.
        """
        shard = self.max_shard_size
        base = (
            _initial_weights(trainable, config, cache)
            if self.base is None
            else _base_weights(trainable, config, cache, self.base, models[0])
        )
        text = self.weights
        weights = soup.parse_weights(models, text, spec.metric, spec.mode) if text else None
        return Recipe(
            method=self.method,
            weights=weights,
            base=base,
            dtype=self.dtype,
            max_memory=_num_bytes("--max-memory", self.max_memory),
            max_shard=_num_bytes("--max-shard-size", shard) if shard else None,
            force=self.force,
        )


def method_of(name: str, options: list[str], base: Path | None) -> Method:
    """The averaging method with its `--set` options.

    Raises:
        UserError: no such method or option, or `base` is given to a method that takes none.
    """
    method = make_method(name, _pairs(options))
    if base is not None and not method.needs_base:
        raise UserError(f"--base: method {name} has no task vectors; task_arithmetic, ties, … do")
    return method


def soup_name(name: str) -> str:
    """The name, checked: it becomes a folder of the sweep."""
    if Path(name).name != name or name.startswith("."):
        raise UserError(f"--name: must be a plain name, got '{name}'")
    return name


def _pairs(options: list[str]) -> dict[str, str]:
    pairs = dict(option.partition("=")[::2] for option in options)
    if bad := [option for option in options if "=" not in option]:
        raise UserError(f"--set {bad[0]}: must be KEY=VALUE, like --set density=0.5")
    return pairs


def _num_bytes(option: str, text: str) -> int:
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise UserError(f"{option}: must be a size like 64MB or 5GB, got '{text}'")
    return int(float(found[1]) * _FACTOR[found[2]])


def _initial_weights(
    trainable: Trainable[Any], config: TrainableConfig, cache: Path
) -> BaseWeights:
    """The trials' weights of step 0, created again."""

    def create(folder: Path) -> tuple[Path, str | None]:
        try:
            return folder / WEIGHTS, trainable.initial(config, folder, cache)
        except NotImplementedError as e:
            raise UserError(str(e)) from e

    return create


def _base_weights(
    trainable: Trainable[Any], config: TrainableConfig, cache: Path, base: Path, model: Candidate
) -> BaseWeights:
    """The weights in the folder `base`.

    Raises:
        UserError: there are none, or they are of another kind of model.
    """
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
