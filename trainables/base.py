"""The base class of all trainables: a typed `Config`, `train`, `evaluate`, and optional parts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from inspect import getfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from trainables.config import TrainableConfig
from trainables.parts import Averages, C, Clients, Exports, Layouts
from trainables.parts import Split as Split
from trainables.runtime.source import package_root, source_digests

if TYPE_CHECKING:
    import torch

    from results.checkpoints.commit import Checkpoint, CheckpointError
    from results.trial_paths import TrialPaths
    from search_spaces.spec.command import UserCodeSpec
    from trainables.runtime.device_meter import DeviceMeter
    from trainables.worker import Worker


class Trainable(Exports[C], Averages[C], Layouts, Clients[C]):
    """The training code of a trial.

    A subclass needs a `Config`, `train` and `evaluate`, or a task (`TaskTrainable`). All else has
    a default. The optional parts are in `trainables.parts`; `offers` tests which methods of them it
    has.

    One process may run many trials, one after another. So a trainable keeps no state of its own,
    and leaves none in modules, the environment or torch's global settings. It never imports
    `ray.tune`, `mlflow`, `optuna` or `pandas`. The class lives in a module that is cheap to import
    (no torch at module level), because `tune plan` reads its `Config`: methods import what they
    need.
    """

    Config: ClassVar[type[TrainableConfig]]
    name: str = ""
    """The name in the sweep file; set by the registry."""
    kind: ClassVar[str] = "trainable"
    """Noun for messages."""
    metric_names: ClassVar[tuple[str, ...]] = ()
    """Names of the metrics that `train` reports; empty: unknown before a trial has reported."""
    metric_depends_on: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """By metric: hyperparameters that change what it measures, so that it does not compare trials
    with different values of them; also those of a group, such as `pretrain.vocab_size`."""
    clock: ClassVar[str] = "step"
    """The unit of `worker.report(step=)`, for messages ("step", "epoch")."""
    modules: tuple[str, ...] = ()
    """Full names of the modules that training needs; warm workers import them beforehand."""
    isolation: ClassVar[Literal["lane", "trial"]] = "lane"
    """`trial` asks for fresh processes for each trial, for code that leaves state behind."""
    hang_timeout_s: ClassVar[float] = 600.0
    """Longest time without a report or heartbeat, unless the sweep file says another (seconds)."""
    can_pause: ClassVar[bool] = True
    """Whether a checkpoint can be saved at any report, so that a scheduler may pause the trial."""
    can_evaluate: bool = True
    """Whether `evaluate` can read the trial's checkpoints, which averaging and testing need."""
    to_evaluate: ClassVar[str] = "write evaluate(), and leave can_evaluate out"
    """Advice where `can_evaluate` is false."""
    uses_ray_train: ClassVar[bool] = False
    """Whether the code starts workers of Ray Train itself. Then each attempt gets its own trainer,
    `train` is not called, and nothing runs without Ray."""
    is_known: ClassVar[bool] = True
    """Whether trials are known to leave nothing but memory behind. Otherwise what they leave is
    looked for, and one that fails where another one has run is tried again in new processes."""
    reads_datasets: bool = False
    """Whether it reads data sets of Ray Data, whose tasks need CPUs beside those of the workers."""

    def train(self, config: C, worker: Worker) -> None:
        """Train one trial, on every rank.

        Start from `worker.resume()` if it returns a checkpoint. Call `worker.report` on every rank
        with strictly increasing steps; return as soon as its answer is not `Answer.CONTINUE`.
        Everything random derives from `worker.seed`; Python's, numpy's and torch's generators are
        seeded with it. A resumed run must give the same curve as an uninterrupted one, bit for bit
        (on a CPU).
        """
        raise NotImplementedError(f"{type(self).__name__} has no train()")

    def evaluate(self, config: C, weights: Path, split: Split, cache: Path) -> dict[str, float]:
        """Evaluate a model in this process, without Ray.

        Args:
            config: the configuration of the trial that trained the weights.
            weights: a folder that holds `model.safetensors` (a checkpoint or a soup).
            split: which part of the data.
            cache: folder of prepared data, shared with training.

        Returns:
            The same metric names that `train` reports.
        """
        raise NotImplementedError(f"{type(self).__name__} has no evaluate()")

    def examples(
        self, config: C, weights: Path, split: Split, cache: Path
    ) -> dict[str, list[float]]:
        """Evaluate a model example by example, always in the same order.

        The spread of the values shows how much of a difference between two models is chance. The
        mean of each list is what `evaluate` returns, up to rounding. By default there is a single
        example; then no average is recommended over a single model.
        """
        return {k: [v] for k, v in self.evaluate(config, weights, split, cache).items()}

    def reported_metrics(self, config: Mapping[str, Any]) -> tuple[str, ...]:
        """`metric_names`, where they depend on the configuration."""
        return self.metric_names

    def seeded(self, config: dict[str, Any], seed: int) -> dict[str, Any]:
        """A trial's configuration with its seed, if the training code reads it from there."""
        return config

    def with_seed(self, config: dict[str, Any], seed: int) -> dict[str, Any]:
        """A configuration to train again under another seed, with other initial weights.

        Raises:
            UserError: the training code takes no seed.
        """
        return {**config, "init_seed": seed} if "init_seed" in self.Config.model_fields else config

    def models(self, paths: TrialPaths) -> Iterator[Checkpoint | CheckpointError]:
        """A trial's checkpoints as folders with `model.safetensors`, verified, newest first."""
        from results.checkpoints.shards import whole_models

        return whole_models(paths)

    def source(self) -> Mapping[str, str]:
        """SHA-256 of each file of the training code, by path below its package or folder.

        Files of other packages are not included.
        """
        file = Path(getfile(type(self)))
        return source_digests(file, package_root(file, type(self).__module__))

    def device_meter(self, device: torch.device) -> DeviceMeter | None:
        """Measures the device while a trial trains, by default an NVIDIA GPU; None: nothing does.

        `resources.gpus_per_worker: auto` lets trials share a device by what it says.
        """
        from trainables.runtime.device_meter import nvml_meter

        return nvml_meter(device)

    def use(self, functions: UserCodeSpec) -> None:
        """Read models by these functions, if it is user code that cannot do it otherwise."""

    def check_runnable(self) -> None:
        """Refuse a session that would start trials.

        Raises:
            UserError: trials are run by something else.
        """

    def offers(self, method: str) -> bool:
        """Whether the trainable has its own version of a method of this class."""
        return getattr(type(self), method) is not getattr(Trainable, method)
