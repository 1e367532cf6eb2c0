"""Runs the trainer that a user's function makes, as an attempt of a trial.

The function builds a `TorchTrainer`, an `XGBoostTrainer` or another one, with data sets of Ray Data
if it likes, and calls `fit()`. What belongs to the trial is replaced: workers, folders, retries and
the number of checkpoints. The loop, its configuration, the backend, data sets and callbacks stay.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ray.train import BackendConfig, RunConfig, ScalingConfig
    from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

LOOP = "loop"
"""Key of the pickled loop, with its configuration, in the configuration of a worker."""
_FIT = (
    "the script calls fit() when it is imported, which would start workers within workers; put "
    "that call under if __name__ == '__main__':"
)


@contextmanager
def replace_fit(fit: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    """Within the block, trainers have another `fit`; gives their own."""
    from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

    original = DataParallelTrainer.fit
    DataParallelTrainer.fit = fit  # type: ignore[method-assign]
    try:
        yield original
    finally:
        DataParallelTrainer.fit = original  # type: ignore[method-assign]


@contextmanager
def refuse_fit() -> Iterator[None]:
    """Within the block, `fit()` of a trainer raises an error instead of waiting for ever."""

    def fit(self: DataParallelTrainer) -> None:
        raise ImportError(_FIT)

    with replace_fit(fit):
        yield


@contextmanager
def adopt_trainers(
    worker: Callable[..., None],
    task: dict[str, Any],
    run: RunConfig,
    scaling: ScalingConfig,
    backend: Callable[[BackendConfig], BackendConfig],
    modules: Sequence[ModuleType],
) -> Iterator[None]:
    """Within the block, `fit()` of a trainer runs it as an attempt.

    Args:
        worker: run on every worker, with `task` and the trainer's own loop.
        task: configuration for `worker`.
        run, scaling: replace those of the trainer; its callbacks stay.
        backend: changes the settings of its process group.
        modules: the user's own. Other processes cannot import them, such as those of Ray Data, so
            what is in them is sent by value. Workers import the script before they get the loop.
    """
    from ray import cloudpickle

    def fit(self: DataParallelTrainer) -> Any:
        _each(cloudpickle.unregister_pickle_by_value, modules)
        own = cloudpickle.dumps((self.train_loop_per_worker, self.train_loop_config))
        _each(cloudpickle.register_pickle_by_value, modules)
        callbacks = [*(run.callbacks or ()), *(self.run_config.callbacks or ())]
        settings: dict[str, Any] = {
            "train_loop_config": {**task, LOOP: own},
            "scaling_config": scaling,
            "run_config": replace(run, callbacks=callbacks),
            "backend_config": backend(self.backend_config),
        }
        vars(self).update(settings, train_loop_per_worker=worker)
        self.train_run_context = replace(self.train_run_context, **settings)
        return original(self)

    _each(cloudpickle.register_pickle_by_value, modules)
    try:
        with replace_fit(fit) as original:
            yield
    finally:
        _each(cloudpickle.unregister_pickle_by_value, modules)


def own_loop(task: dict[str, Any]) -> Callable[[], Any]:
    """In a worker whose trainer was adopted: the trainer's loop, with its configuration."""
    from ray import cloudpickle

    return call_of(*cloudpickle.loads(task[LOOP]))


def call_of(loop: Callable[..., Any], config: dict[str, Any] | None) -> Callable[[], Any]:
    """A loop as Ray Train calls it: with its configuration, if it takes an argument."""
    takes_config = bool(inspect.signature(loop).parameters)
    return lambda: loop(config or {}) if takes_config else loop()


def _each(change: Callable[[ModuleType], None], modules: Iterable[ModuleType]) -> None:
    for module in modules:
        change(module)
