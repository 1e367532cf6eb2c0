"""Functions and classes that were written for Ray Tune, as trainables on one worker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from search_spaces.errors import UserError
from search_spaces.nested import show
from search_spaces.spec.sweep import SweepSpec
from trainables.config import Problem
from trainables.user_code import loader
from trainables.user_code.parameters import parameter_problems
from trainables.user_code.private_folders import private_folders
from trainables.user_code.ray_code import says_done, tune_class_methods, tune_problems
from trainables.user_code.user_loop import UncheckedConfig, UserFunction

if TYPE_CHECKING:
    from trainables.user_code.ray_tune.session import Reports
    from trainables.worker import Worker

_STATE = "_dict_checkpoint.pkl"
"""File of a checkpoint that is a dict, as Ray Tune names it."""


class TuneCode(UserFunction):
    """What functions and classes for Ray Tune have in common."""

    def code_problems(self) -> list[str]:
        """A search at import, a wrong signature; see the base class."""
        return [*super().code_problems(), *tune_problems(self.name)]


class TuneFunction(TuneCode):
    """Calls a function, which reports by `ray.tune.report` and decides what it saves."""

    kind = "Ray Tune function"

    @property
    def to_pause(self) -> str | None:
        """See the base class."""
        saves = b"checkpoint" in loader.find(self.name).read_bytes().lower()
        return None if saves else "let it report a checkpoint"

    def train(self, config: UncheckedConfig, worker: Worker) -> None:
        """Call the function; see the base class."""
        from trainables.user_code.ray_tune.session import session

        with session(worker) as running:
            function = loader.load(self.name)  # its path may be relative
            with private_folders(worker.job.paths):
                running.run(function)

    def setting_problems(
        self, spec: SweepSpec, configs: Sequence[Mapping[str, Any]]
    ) -> list[Problem]:
        """Also names that the function does not know; see the base class."""
        names = {name for config in configs for name in config}
        found = super().setting_problems(spec, configs)
        return [*found, *parameter_problems(self.name, spec, names)]


class TuneClass(TuneCode):
    """Calls the methods of a class that derives from `ray.tune.Trainable`, a report per `step`."""

    kind = "Ray Tune class"

    def __init__(self, name: str) -> None:
        super().__init__(name)
        methods = tune_class_methods(name)
        self.can_pause = methods is None or {"save_checkpoint", "load_checkpoint"} <= methods  # type: ignore[misc]  # of this class

    @property
    def to_pause(self) -> str | None:
        """See the base class."""
        return None if self.can_pause else "write save_checkpoint() and load_checkpoint()"

    def setting_problems(
        self, spec: SweepSpec, configs: Sequence[Mapping[str, Any]]
    ) -> list[Problem]:
        """Also a class that nothing would end; see the base class."""
        found = super().setting_problems(spec, configs)
        if spec.scheduler.max_t is None and not says_done(self.name):
            problem = "nothing ends a trial: give max_t, or let step() return {'done': True}"
            found.append((("scheduler",), problem))
        return found

    def train(self, config: UncheckedConfig, worker: Worker) -> None:
        """Call `setup`, `load_checkpoint`, `step` again and again, and `cleanup`; see the base
        class.
        """
        from trainables.user_code.ray_tune.session import Reports, session

        found = worker.resume()
        reports = Reports(worker, found.step if found else None)
        with session(worker):
            loaded = loader.load(self.name)  # its path may be relative
        with private_folders(worker.job.paths):
            own = _adopted(loaded, worker, reports)
            trial = own(config=dict(worker.job.config), storage=_Folder(worker.job.paths.work))
            try:
                if found is not None:
                    _load(trial, found.folder)
                while not reports.ended:
                    result = trial.step()
                    if not isinstance(result, Mapping):
                        raise UserError(f"step() returned {show(result)}, which is not a dict")
                    save = (lambda folder: _save(trial, folder)) if self.can_pause else None
                    reports.add(result, save, save_now=bool(result.get("should_checkpoint")))
            finally:
                trial.stop()


@dataclass(frozen=True)
class _Folder:
    """What Ray's `Trainable` needs of its storage: it changes to the folder of the trial."""

    trial_working_directory: Path

    @property
    def trial_fs_path(self) -> str:
        return str(self.trial_working_directory)


def _adopted(own: Any, worker: Worker, reports: Reports) -> Any:
    """The class, with the ids and the iteration of a trial."""
    done = property(lambda _: reports.last_step)
    trial = property(lambda _: worker.job.trial_id)
    names = {"iteration": done, "training_iteration": done, "trial_id": trial, "trial_name": trial}
    return type(own.__name__, (own,), names)


def _save(trial: Any, folder: Path) -> None:
    """Save a checkpoint as Ray Tune does: files in a folder, or a dict."""
    from ray import cloudpickle

    saved = trial.save_checkpoint(str(folder))
    if isinstance(saved, dict):
        (folder / _STATE).write_bytes(cloudpickle.dumps(saved))
    elif saved is not None and Path(saved) != folder:
        raise UserError(
            f"save_checkpoint() returned {show(saved)}; return the given folder, a dict or None"
        )


def _load(trial: Any, folder: Path) -> None:
    from ray import cloudpickle

    state = folder / _STATE
    trial.load_checkpoint(cloudpickle.loads(state.read_bytes()) if state.exists() else str(folder))
