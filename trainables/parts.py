"""What a trainable may offer beside training: a class for each part, with the methods it needs.

`Trainable` has all but `OwnChecks`. A method that a trainable does not write is not offered:
`Trainable.offers` says so, and the method here raises an error that names it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NoReturn, TypeVar

from trainables.config import Problem, TrainableConfig

if TYPE_CHECKING:
    import torch

    from results.export.exportable import Exportable
    from search_spaces.spec.sweep import SweepSpec
    from trainables.client import Client

C = TypeVar("C", bound=TrainableConfig)


class Split(StrEnum):
    """The three parts of a data set. The search sees TRAIN and SELECTION only."""

    TRAIN = "train"
    SELECTION = "selection"
    TEST = "test"


class Exports(Generic[C]):
    """Models in the form of other programs: `tune export`, `tune generate`, `tune predict`."""

    formats: ClassVar[tuple[str, ...]] = ()
    """The only formats of `tune export` that hold its models; empty: those of modules of torch."""

    def read_rows(self, config: C, weights: Path, file: Path) -> torch.Tensor:
        """The rows of a file as `exportable`'s module takes them; by default `tune predict` reads
        arrays of numbers.

        Raises:
            UserError: it cannot be read, or has other columns than the model.
        """
        _refuse(self, "read_rows")

    def exportable(self, config: C, weights: Path, cache: Path) -> Exportable:
        """The model as other runtimes take it, with example inputs to verify a copy.

        Raises:
            NotImplementedError: the trainable has no such form.
        """
        _refuse(self, "exportable")

    def export_hf(self, config: C, weights: Path, target: Path, cache: Path) -> None:
        """Write a folder that `transformers` loads as it is (weights, config, tokenizer).

        Raises:
            NotImplementedError: the trainable has no `transformers` form.
        """
        _refuse(self, "export_hf", ", which writes the transformers form")


class Averages(Generic[C]):
    """Averages of models: `tune average`. A method of averaging may need the model of step 0."""

    not_averaged: ClassVar[str] = ""
    """Why its models cannot be averaged, if so."""

    def recalibrate(self, config: C, weights: Path, cache: Path) -> None:
        """Recompute statistics that are not learned (BatchNorm's) in `model.safetensors`.

        The average of several models' statistics does not fit their averaged weights. By default
        nothing is done, which is right for a model without such statistics.
        """

    def initial(self, config: C, target: Path, cache: Path) -> str:
        """Write the weights of step 0 to `target / "model.safetensors"`; returns their lineage.

        The difference from them is what a trial has learned (methods `ties`, `dare_linear`, …).

        Raises:
            NotImplementedError: the trainable cannot create them again.
        """
        _refuse(self, "initial", ", which averaging methods such as ties need")

    def digest(self, config: C, weights: Path, cache: Path) -> str:
        """Lineage of models that start from the weights in a folder, as `initial` returns it.

        Raises:
            NotImplementedError: the trainable cannot compute it.
        """
        _refuse(self, "digest")


class Layouts:
    """How trials are spread over ranks: `resources.workers` and `resources.layout`."""

    elastic: ClassVar[bool] = False
    """Whether a trial that resumes with another number of workers trains on the same samples in the
    same batches, as `resources.workers: {min: 1, max: 4}` needs it."""
    axes: ClassVar[tuple[str, ...]] = ("dp_replicate",)
    """The axes of `resources.layout` that the training code follows, by `worker.mesh`."""
    cuts_sequences: ClassVar[bool] = False
    """Whether it follows `sequence_parallel` of a layout."""
    runs_on_mps: ClassVar[bool] = False
    """Whether a single worker without a CUDA device may use Apple's GPU."""


class Clients(Generic[C]):
    """Training by clients, whose models a server averages: `trainable: federated`."""

    def client(self, config: C, cache: Path) -> Client:
        """The model, data and steps of one client.

        Raises:
            NotImplementedError: the trainable cannot be trained by clients.
        """
        _refuse(self, "client", ", which federated training needs")


class OwnChecks:
    """Checks of a sweep file that only user code can make; paths are keys of the file.

    `tuning.controller.preflight.trainables` checks those of a `Config` by itself.
    """

    def code_problems(self) -> list[str]:
        """Mistakes that a look at the source of the training code shows, a line each."""
        return []

    def config_problems(self, config: Mapping[str, Any], *, files: bool) -> list[Problem]:
        """Mistakes in a configuration.

        Args:
            files: whether trials run on this machine, which must have the files of their data.
        """
        return []

    def worker_problems(self, config: Mapping[str, Any], workers: Sequence[int]) -> list[Problem]:
        """Reasons why a trial cannot have each of these numbers of workers."""
        return []

    def setting_problems(
        self, spec: SweepSpec, configs: Sequence[Mapping[str, Any]]
    ) -> list[Problem]:
        """Settings of a sweep file without effect, and what it lacks.

        Args:
            spec: of the sweep.
            configs: sampled configurations.
        """
        return []


def _refuse(trainable: object, method: str, needed_for: str = "") -> NoReturn:
    raise NotImplementedError(f"{type(trainable).__name__} has no {method}(){needed_for}")
