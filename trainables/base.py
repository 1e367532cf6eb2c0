"""The base class of all trainables: a typed `Config`, `train`, `evaluate`, and optional methods."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from importlib import import_module
from inspect import getfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeVar

from pydantic import ValidationError

from search_spaces.layout import AXES, Layout
from trainables.client import Client
from trainables.config import Problem, TrainableConfig
from trainables.runtime.source import package_root, source_digests
from trainables.worker import Worker

if TYPE_CHECKING:
    from results.checkpoints.commit import Checkpoint, CheckpointError
    from results.export.exportable import Exportable
    from results.trial_paths import TrialPaths
    from search_spaces.spec.command import UserCodeSpec
    from search_spaces.spec.sweep import SweepSpec

C = TypeVar("C", bound=TrainableConfig)


class Split(StrEnum):
    """The three parts of a data set. The search sees TRAIN and SELECTION only."""

    TRAIN = "train"
    SELECTION = "selection"
    TEST = "test"


class Trainable(Generic[C]):
    """The training code of a trial.

    A subclass needs a `Config`, `train` and `evaluate` (or a task, see `TaskTrainable`); the other
    methods are optional, and `offers` tests which it has. A method is written in the class, or is a
    function of the same name (without `self`) in a module that `implementation` names.

    One process may run many trials, one after another. So a trainable keeps no state of its own,
    and leaves none in modules, the environment or torch's global settings. It never imports
    `ray.tune`, `mlflow`, `optuna` or `pandas`. The class lives in a module that is cheap to import
    (no torch at module level), because `tune plan` reads its `Config`.
    """

    Config: ClassVar[type[TrainableConfig]]
    implementation: ClassVar[tuple[str, ...]] = ()
    """Full names of the modules that hold the methods' code; imported when it is first called."""
    metric_names: ClassVar[tuple[str, ...]] = ()
    """Names of the metrics that `train` reports; empty: unknown before a trial has reported."""
    clock: ClassVar[str] = "step"
    """The unit of `worker.report(step=)`, for messages ("step", "epoch")."""
    isolation: ClassVar[Literal["lane", "trial"]] = "lane"
    """`trial` asks for fresh processes for each trial, for code that leaves state behind."""
    elastic: ClassVar[bool] = False
    """Whether a trial that resumes with another number of workers trains on the same samples in the
    same batches, as `resources.workers: {min: 1, max: 4}` needs it."""
    axes: ClassVar[tuple[str, ...]] = ("dp_replicate",)
    """The axes of `resources.layout` that the training code follows, by `worker.mesh`."""
    cuts_sequences: ClassVar[bool] = False
    """Whether it follows `sequence_parallel` of a layout."""
    can_pause: ClassVar[bool] = True
    """Whether a checkpoint can be saved at any report, so that a scheduler may pause the trial."""
    can_evaluate: bool = True
    """Whether `evaluate` can read the trial's checkpoints, which averaging and testing need."""
    to_evaluate: ClassVar[str] = "write evaluate(), and leave can_evaluate out"
    """Advice where `can_evaluate` is false."""
    hang_timeout_s: ClassVar[float] = 600.0
    """Longest time without a report or heartbeat, unless the sweep file says another (seconds)."""
    runs_on_mps: ClassVar[bool] = False
    """Whether a single worker without a CUDA device may use Apple's GPU."""
    uses_ray_train: ClassVar[bool] = False
    """Whether the code starts workers of Ray Train itself. Then each attempt gets its own trainer,
    `train` is not called, and nothing runs without Ray."""
    is_known: ClassVar[bool] = True
    """Whether trials are known to leave nothing but memory behind. Otherwise what they leave is
    looked for, and one that fails where another one has run is tried again in new processes."""
    reads_datasets: bool = False
    """Whether it reads data sets of Ray Data, whose tasks need CPUs beside those of the workers."""
    kind: ClassVar[str] = "trainable"
    """Noun for messages."""
    name: str = ""
    """The name in the sweep file; set by the registry."""

    def train(self, config: C, worker: Worker) -> None:
        """Train one trial, on every rank.

        Start from `worker.resume()` if it returns a checkpoint. Call `worker.report` on every rank
        with strictly increasing steps; return as soon as its answer is not `Answer.CONTINUE`.
        Everything random derives from `worker.seed`; Python's, numpy's and torch's generators are
        seeded with it. A resumed run must give the same curve as an uninterrupted one, bit for bit
        (on a CPU).
        """
        self._call("train", config, worker)

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
        scores: dict[str, float] = self._call("evaluate", config, weights, split, cache)
        return scores

    def worker_problems(self, config: Mapping[str, Any], workers: Sequence[int]) -> list[Problem]:
        """Reasons why a trial cannot have each of these numbers of workers.

        An empty path stands for the trainable itself. For an invalid configuration nothing is
        returned; see `TrainableConfig.problems`.
        """
        if len(workers) > 1 and not self.elastic:
            problem = f"{self.name} does not say that it can change its number of workers (elastic)"
            return [((), problem)]
        try:
            checked = self.Config.model_validate(dict(config))
        except ValidationError:
            return []
        found = checked.validate_workers(workers)
        return [] if found is None else [((found[0],), found[1])]

    def layout_problems(self, config: Mapping[str, Any], layout: Layout) -> list[Problem]:
        """Reasons why a trial cannot have this layout; paths as of `worker_problems`."""
        if unknown := [
            name for name in (*AXES, "ep") if getattr(layout, name) > 1 and name not in self.axes
        ]:
            followed = ", ".join(self.axes)
            return [((), f"{self.name} follows {followed} only, got {unknown[0]}")]
        if layout.cuts_sequences and not self.cuts_sequences:
            return [((), f"{self.name} does not follow sequence_parallel")]
        try:
            checked = self.Config.model_validate(dict(config))
        except ValidationError:
            return []
        found = checked.validate_layout(layout)
        if found is None:
            return []
        field, problem = found
        if field:
            return [((field,), problem)]
        others = layout.neighbours(self.axes)
        fits = next((other for other in others if checked.validate_layout(other) is None), None)
        nearest = f"; nearest layout that fits: {fits.as_written()}" if fits else ""
        return [((), problem + nearest)]

    def config_problems(self, config: Mapping[str, Any], *, files: bool) -> list[Problem]:
        """All mistakes in a configuration, of which `Config` knows most.

        Args:
            files: whether trials run on this machine, which must have the files of their data.
        """
        problems = self.Config.problems(config)
        if files and not problems:
            problems = self.Config.model_validate(dict(config)).missing_files()
        return problems

    def reported_metrics(self, config: Mapping[str, Any]) -> tuple[str, ...]:
        """`metric_names`, where they depend on the configuration."""
        return self.metric_names

    def code_problems(self) -> list[str]:
        """Mistakes that a look at the source of the training code shows, a line each."""
        return []

    def seeded(self, config: dict[str, Any], seed: int) -> dict[str, Any]:
        """A trial's configuration with its seed, if the training code reads it from there."""
        return config

    def setting_problems(
        self, spec: SweepSpec, configs: Sequence[Mapping[str, Any]]
    ) -> list[Problem]:
        """Settings of a sweep file without effect, and what it lacks, by their path in the file.

        Args:
            spec: of the sweep.
            configs: sampled configurations.
        """
        problem = f"has no effect: {self.name} reads its models itself; remove it"
        return [(("user_code",), problem)] if spec.user_code.named else []

    def check_runnable(self) -> None:
        """Refuse a session that would start trials.

        Raises:
            UserError: trials are run by something else.
        """

    def use(self, functions: UserCodeSpec) -> None:
        """Read models by these functions, if it is user code that cannot do it otherwise."""

    def models(self, paths: TrialPaths) -> Iterator[Checkpoint | CheckpointError]:
        """A trial's checkpoints as folders with `model.safetensors`, verified, newest first."""
        from results.checkpoints.whole_model import whole_models

        return whole_models(paths)

    def with_seed(self, config: dict[str, Any], seed: int) -> dict[str, Any]:
        """A configuration to train again under another seed, with other initial weights.

        Raises:
            UserError: the training code takes no seed.
        """
        return {**config, "init_seed": seed} if "init_seed" in self.Config.model_fields else config

    def source(self) -> Mapping[str, str]:
        """SHA-256 of each file of the training code, by path below its package or folder.

        Files of other packages are not included.
        """
        file = Path(getfile(type(self)))
        return source_digests(file, package_root(file, type(self).__module__))

    def exportable(self, config: C, weights: Path, cache: Path) -> Exportable:
        """The model as other runtimes take it, with example inputs to verify a copy.

        Raises:
            NotImplementedError: the trainable has no such form.
        """
        model: Exportable = self._call("exportable", config, weights, cache)
        return model

    def export_hf(self, config: C, weights: Path, target: Path, cache: Path) -> None:
        """Write a folder that `transformers` loads as it is (weights, config, tokenizer).

        Raises:
            NotImplementedError: the trainable has no `transformers` form.
        """
        self._call("export_hf", config, weights, target, cache)

    def examples(
        self, config: C, weights: Path, split: Split, cache: Path
    ) -> dict[str, list[float]]:
        """Evaluate a model example by example, always in the same order.

        The spread of the values shows how much of a difference between two models is chance. The
        mean of each list is what `evaluate` returns, up to rounding. By default there is a single
        example; then no average is recommended over a single model.
        """
        if (found := self._function("examples")) is None:
            return {k: [v] for k, v in self.evaluate(config, weights, split, cache).items()}
        scores: dict[str, list[float]] = found(config, weights, split, cache)
        return scores

    def initial(self, config: C, target: Path, cache: Path) -> str:
        """Write the weights of step 0 to `target / "model.safetensors"`; returns their lineage.

        The difference from them is what a trial has learned (methods `ties`, `dare_linear`, …).

        Raises:
            NotImplementedError: the trainable cannot create them again.
        """
        lineage: str = self._call("initial", config, target, cache)
        return lineage

    def digest(self, config: C, weights: Path, cache: Path) -> str:
        """Lineage of models that start from the weights in a folder, as `initial` returns it.

        Raises:
            NotImplementedError: the trainable cannot compute it.
        """
        lineage: str = self._call("digest", config, weights, cache)
        return lineage

    def recalibrate(self, config: C, weights: Path, cache: Path) -> None:
        """Recompute statistics that are not learned (BatchNorm's) in `model.safetensors`.

        The average of several models' statistics does not fit their averaged weights. By default
        nothing is done, which is right for a model without such statistics.
        """
        if (found := self._function("recalibrate")) is not None:
            found(config, weights, cache)

    def client(self, config: C, cache: Path) -> Client:
        """The model, data and steps of one client, for `trainable: federated`.

        Raises:
            NotImplementedError: the trainable cannot be trained by clients.
        """
        client: Client = self._call("client", config, cache)
        return client

    def offers(self, method: str) -> bool:
        """Whether the trainable has its own version of a method of this class."""
        overridden = getattr(type(self), method) is not getattr(Trainable, method)
        return overridden or self._function(method) is not None

    @property
    def modules(self) -> tuple[str, ...]:
        """Full names of the modules that training needs; warm workers import them beforehand."""
        return self.implementation

    def _function(self, name: str) -> Callable[..., Any] | None:
        each = (getattr(import_module(module), name, None) for module in self.implementation)
        return next((found for found in each if found is not None), None)

    def _call(self, name: str, *args: Any) -> Any:
        if (found := self._function(name)) is None:
            needed = _NEEDED_FOR.get(name, "")
            raise NotImplementedError(f"{type(self).__name__} has no {name}(){needed}")
        return found(*args)


_NEEDED_FOR = {
    "initial": ", which averaging methods such as ties need",
    "client": ", which federated training needs",
    "export_hf": ", which writes the transformers form",
}
