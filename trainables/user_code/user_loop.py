"""A train loop that a user wrote for Ray Train's public API, as a trainable."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import ConfigDict

from results.checkpoints.commit import Checkpoint, CheckpointError
from results.export.exportable import Exportable
from results.trial_paths import TrialPaths
from search_spaces.errors import UserError
from search_spaces.spec.command import UserCodeSpec
from search_spaces.spec.scheduler import PAUSING
from search_spaces.spec.sweep import SweepSpec
from trainables.base import Split, Trainable
from trainables.config import Problem, TrainableConfig, path_in
from trainables.parts import OwnChecks
from trainables.runtime.source import source_digests
from trainables.user_code import loader, models
from trainables.user_code.offered import REFUSED, SETTINGS
from trainables.user_code.parameters import parameter_problems
from trainables.user_code.ray_code import never_reports, reads_seed, train_loop_problems
from trainables.worker import Worker

_CONNECT_ONCE = frozenset({"deepspeed", "horovod", "jax", "mpi4py", "tensorflow", "torch_xla"})


class UncheckedConfig(TrainableConfig):
    """Hyperparameters that are not checked: all names and values are accepted."""

    model_config = ConfigDict(extra="allow")

    @property
    def checkpoint_bytes(self) -> None:
        """Unknown: the code decides what its checkpoints hold."""
        return None

    @classmethod
    def resolve_paths(cls, config: dict[str, Any], folder: Path) -> dict[str, Any]:
        """Texts that name existing files or folders, made absolute; see the base class.

        A name without a slash and without a dot, such as `train`, is no path.
        """
        return {name: _resolved(value, folder) for name, value in config.items()}


def _resolved(value: Any, folder: Path) -> Any:
    if isinstance(value, dict):
        return {name: _resolved(part, folder) for name, part in value.items()}
    if isinstance(value, list):
        return [_resolved(part, folder) for part in value]
    is_path = isinstance(value, str) and ("/" in value or "." in value)
    return (path_in(folder, value) or value) if is_path else value


class UserCode(OwnChecks, Trainable[UncheckedConfig]):
    """Code that only its author can read: its checkpoints are its own, and it sends no heartbeats.

    Functions that the sweep file names (`user_code`) read, score and export its models.

    Args:
        name: as in the sweep file.
    """

    Config = UncheckedConfig
    article = "a"
    hang_timeout_s = 3600.0  # an epoch may print nothing
    can_pause = False
    can_evaluate = False
    to_evaluate = (
        "name a function of yours that scores weights: tune resume SWEEP --set "
        "user_code.evaluate=script.py:function"
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self._functions = UserCodeSpec()

    def use(self, functions: UserCodeSpec) -> None:
        """See the base class."""
        self._functions = functions
        self.can_evaluate = functions.evaluate is not None

    def worker_problems(self, config: Mapping[str, Any], workers: Sequence[int]) -> list[Problem]:
        """Numbers of workers that this kind of code cannot have; see the base class."""
        refused, is_fixed = REFUSED[self.kind], len(workers) <= 1
        problem = refused.get("resources.workers") if list(workers) != [1] else None
        problem = problem or (None if is_fixed else refused.get("resources.workers: {min, max}"))
        return [((), f"{self.article} {self.kind} {problem}")] if problem else []

    def setting_problems(
        self, spec: SweepSpec, configs: Sequence[Mapping[str, Any]]
    ) -> list[Problem]:
        """Settings without effect, mistakes in `user_code`, schedulers that need checkpoints; see
        the base class.
        """
        found: list[Problem] = []
        for setting, text in REFUSED[self.kind].items():
            if setting in SETTINGS and SETTINGS[setting](spec):
                key, _, value = setting.partition(": ")
                found.append((tuple(key.split(".")), f"{value} {text}".lstrip()))
        found += models.function_problems(spec.user_code)
        name = spec.scheduler.name
        if name in PAUSING and self.to_pause is not None:
            problem = f"{name} continues trials from checkpoints, and this {self.kind} saves none"
            found.append((("scheduler", "name"), f"{problem}; use asha, or {self.to_pause}"))
        return found

    @property
    def to_pause(self) -> str | None:
        """What to do so that its trials can continue from a checkpoint; None if they can."""
        return None

    def models(self, paths: TrialPaths) -> Iterator[Checkpoint | CheckpointError]:
        """See the base class, and `user_code.weights`."""
        return models.read_models(self._functions, paths)

    def evaluate(
        self, config: UncheckedConfig, weights: Path, split: Split, cache: Path
    ) -> dict[str, float]:
        """See the base class, and `user_code.evaluate`."""
        scores = self.examples(config, weights, split, cache)
        return {name: statistics.fmean(values) for name, values in scores.items()}

    def examples(
        self, config: UncheckedConfig, weights: Path, split: Split, cache: Path
    ) -> dict[str, list[float]]:
        """See the base class, and `user_code.evaluate`."""
        return models.score(self._functions, weights, config.model_dump(), split)

    def exportable(self, config: UncheckedConfig, weights: Path, cache: Path) -> Exportable:
        """See the base class, and `user_code.model`."""
        return models.make_exportable(self._functions, weights, config.model_dump())


class UserFunction(UserCode):
    """A function of the user's: `path/to/script.py:function` or `package.module:function`."""

    gets_config = True

    def source(self) -> Mapping[str, str]:
        """The file of the function and what it imports from beside it; see the base class."""
        return source_digests(loader.find(self.name), loader.root_of(self.name))

    def code_problems(self) -> list[str]:
        """Searches and trainings that begin when a worker imports the code; see the base class."""
        return loader.searches_at_import(self.name)

    @property
    def reads_seed(self) -> bool:
        """Whether it reads `config["seed"]`."""
        return self.gets_config and reads_seed(self.name)

    def seeded(self, config: dict[str, Any], seed: int) -> dict[str, Any]:
        """Generators are seeded before each trial, `config["seed"]` too; see the base class."""
        return {**config, "seed": seed} if "seed" not in config and self.reads_seed else config

    def with_seed(self, config: dict[str, Any], seed: int) -> dict[str, Any]:
        """As `seeded`, also where the sweep has a seed; see the base class."""
        return {**config, "seed": seed} if "seed" in config or self.reads_seed else config


class UserLoop(UserFunction):
    """A function that reports by `ray.train.report`, and owns its checkpoints.

    The user's file is imported on the workers only, again for each trial.
    """

    kind = "Ray Train loop"
    is_known = False

    @property
    def isolation(self) -> Literal["lane", "trial"]:  # type: ignore[override]  # as below
        """Libraries that connect the processes once in their life need fresh ones."""
        tops = {name.partition(".")[0] for name in self.modules}
        return "trial" if tops & _CONNECT_ONCE else "lane"

    @property
    def modules(self) -> tuple[str, ...]:  # type: ignore[override]  # as below
        """The libraries that its files import; see the base class."""
        return loader.libraries(self.name)

    def train(self, config: UncheckedConfig, worker: Worker) -> None:
        """Call the loop; see the base class."""
        from trainables.user_code.ray_train.session import run_loop

        run_loop(worker)

    @property
    def reads_datasets(self) -> bool:  # type: ignore[override]  # others have a class attribute
        """Whether a file of the loop's asks Ray Train for a data set; see the base class."""
        return any(b"get_dataset_shard" in file.read_bytes() for file in self._files())

    def _files(self) -> list[Path]:
        root = loader.root_of(self.name)
        return [loader.find(self.name), *(root / file for file in self.source())]

    def code_problems(self) -> list[str]:
        """Also a wrong signature, no report, reports to Ray Tune; see the base class."""
        path, silent = loader.find(self.name), never_reports(self._files())
        problem = f"{path}: never calls ray.train.report, so no trial would have a value"
        found = [*super().code_problems(), *train_loop_problems(self.name)]
        return [*found, *([problem] if silent else [])]

    def setting_problems(
        self, spec: SweepSpec, configs: Sequence[Mapping[str, Any]]
    ) -> list[Problem]:
        """Also a seed that replicates lack, and names that the loop does not know; see the base
        class.
        """
        names = {name for config in configs for name in config}
        found = super().setting_problems(spec, configs)
        if self.isolation == "trial" and spec.resources.isolation == "lane":
            problem = f"lane has no effect: each trial of this {self.kind} has fresh processes"
            found.append((("resources", "isolation"), f"{problem}; remove it"))
        if spec.scheduler.name == "asha_promote":
            problem = f"pauses at rungs, but a {self.kind} decides itself when it saves; use asha"
            found.append((("scheduler", "name"), f"asha_promote {problem}"))
        if spec.replicates > 1 and "seed" in names:
            problem = "gives every replicate this seed; remove it, the loop gets one as config"
            found.append((("fixed", "seed"), f"{problem}['seed']"))
        elif spec.replicates > 1 and not self.reads_seed:
            problem = "would repeat one trial: the loop's file does not read config['seed']"
            found.append((("replicates",), problem))
        return [*found, *parameter_problems(self.name, spec, names)]

    def with_seed(self, config: dict[str, Any], seed: int) -> dict[str, Any]:
        """The loop reads `config["seed"]`; see the base class."""
        if "seed" not in config and not self.reads_seed:
            raise UserError(
                f"trainable {self.name}: takes no seed, so it cannot be trained again "
                "under fresh ones; let the loop seed itself with config['seed']"
            )
        return super().with_seed(config, seed)


class TrainerFunction(UserLoop):
    """A function that builds a trainer of Ray Train and calls its `fit()`.

    Each attempt gets the trainer's own processes, with its backend, data sets and callbacks.
    """

    isolation = "trial"
    uses_ray_train = True
    kind = "function that builds a trainer"
