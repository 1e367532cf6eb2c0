"""What `ray.tune.report` and its like do while a function or class for Ray Tune is a trial.

They are replaced in `ray.tune` by functions of this module, which lead to the trial that runs in
this process. So they are right also where a script imported them by name for an earlier trial.
"""

from __future__ import annotations

import inspect
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from results.checkpoints.commit import Checkpoint
from search_spaces.errors import UserError
from search_spaces.nested import show
from trainables.checkpointing.saver import SaveFn
from trainables.job import Answer
from trainables.user_code.metrics import StepCounter, flat_numbers, warn_not_restored

if TYPE_CHECKING:
    from ray import tune

    from trainables.worker import Worker

_CONTROL = ("done", "should_checkpoint")
"""Keys of a report that are no metrics."""
_current: FunctionSession | None = None


class FunctionEnded(SystemExit):
    """Ends a function at the report at which its trial ends; not an `Exception` that code catches.

    Ray Tune ends functions in this way too.
    """


class Reports:
    """The reports of an attempt, with their steps.

    Args:
        begin: the step of the checkpoint that the code took up; None for a fresh start.

    Attributes:
        ended: whether the trial is over, so that nothing may be reported any more.
    """

    def __init__(self, worker: Worker, begin: int | None) -> None:
        self._worker = worker
        self._steps = StepCounter(worker.job, begin)
        self.ended = False

    @property
    def last_step(self) -> int:
        """The step of the last report."""
        return self._steps.last

    def add(self, reported: Mapping[str, Any], save: SaveFn | None, *, save_now: bool) -> None:
        """Report what the code reported; one without numbers, or that repeats an earlier one, only
        saves a checkpoint.

        Args:
            save: writes a checkpoint.
            save_now: whether it is written although none is due.
        """
        job = self._worker.job
        metrics = {k: v for k, v in reported.items() if k not in _CONTROL}
        numbers = flat_numbers(metrics, job.retention.metric)
        final = bool(reported.get("done"))
        found = self._steps.number(numbers) if numbers or not save_now else None
        if found is None:
            self._worker.heartbeat()
            if save and save_now:
                self._worker.saver.begin(self._steps.last, save, self._worker.barrier)
            self.ended = final
            return
        step, numbers = found
        clock = numbers.get(job.time_attr, step)
        final = final or (job.max_t is not None and clock >= job.max_t)
        answer = self._worker.report(
            step=step, metrics=numbers, checkpoint=save, final=final, save_now=save_now
        )
        self.ended = final or answer is not Answer.CONTINUE


class FunctionSession:
    """Answers the calls that a function for Ray Tune makes."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self._found: Checkpoint | None = None
        self._asked = False
        self._reports: Reports | None = None
        self._newest: dict[str, Any] = {}
        self._error: BaseException | None = None

    def run(self, function: Callable[..., Any]) -> None:
        """Call a function, and report what it returns or yields."""
        try:
            output = function(dict(self.worker.job.config))
            for each in output if inspect.isgenerator(output) else ():
                self._report_output(each)
            if not inspect.isgenerator(output) and output != self._newest:
                self._report_output(output)
        except BaseException:
            if self._error is None and not self._ended:
                raise
        if self._error is not None:  # even if the function caught it
            raise self._error

    def get_checkpoint(self) -> tune.Checkpoint | None:
        """See `ray.tune.get_checkpoint`."""
        from ray import tune

        if not self._asked:
            self._asked, self._found = True, self.worker.resume()
        if self._found is None:
            return None
        folder = str(self._found.folder)
        return cast("tune.Checkpoint", tune.Checkpoint.from_directory(folder))

    def report(self, metrics: Mapping[str, Any], checkpoint: tune.Checkpoint | None) -> None:
        """See `ray.tune.report`.

        Raises:
            FunctionEnded: the trial is over.
        """
        if self._reports is None:
            self._reports = Reports(self.worker, self._begin())
        if not self._ended:
            save = (lambda folder: _copy(checkpoint, folder)) if checkpoint else None
            try:
                self._reports.add(metrics, save, save_now=save is not None)
            except BaseException as e:
                self._error = e
                raise
            self._newest = dict(metrics)
        if self._ended:
            raise FunctionEnded(0)

    @property
    def _ended(self) -> bool:
        return self._reports is not None and self._reports.ended

    def _begin(self) -> int | None:
        """The step of the checkpoint that the function took up."""
        if not self._asked and self.worker.job.paths.checkpoint_steps():
            warn_not_restored(self.worker.job, "function", "ray.tune.get_checkpoint()")
        return self._found.step if self._found else None

    def _report_output(self, output: Any) -> None:
        if isinstance(output, Mapping) and output:
            self.report(output, None)
        elif hasattr(output, "__float__"):
            self.report({self.worker.job.retention.metric: output}, None)
        elif output not in ({}, None):
            raise UserError(
                f"the function returned {show(output)}, which is neither a number nor a dict"
            )


class Context:
    """What `ray.tune.get_context()` returns."""

    def get_trial_id(self) -> str:
        """Id of the trial in the sweep."""
        return _session().worker.job.trial_id

    get_trial_name = get_trial_id

    def get_trial_dir(self) -> str:
        """The working directory of the trial."""
        return str(_session().worker.job.paths.work)

    def get_experiment_name(self) -> str:
        """Name of the sweep's folder."""
        return Path(_session().worker.job.folder).parents[1].name


def report(metrics: dict[str, Any], *, checkpoint: tune.Checkpoint | None = None) -> None:
    """See `ray.tune.report`."""
    _session().report(metrics, checkpoint)


def get_checkpoint() -> tune.Checkpoint | None:
    """See `ray.tune.get_checkpoint`."""
    return _session().get_checkpoint()


_REPLACED = {"report": report, "get_checkpoint": get_checkpoint, "get_context": Context}


@contextmanager
def session(worker: Worker) -> Iterator[FunctionSession]:
    """Within the block, the functions of `ray.tune` lead to a trial."""
    global _current
    from ray import tune

    originals = {name: getattr(tune, name) for name in _REPLACED}
    _current = FunctionSession(worker)
    try:
        for name, function in _REPLACED.items():
            setattr(tune, name, function)
        yield _current
    finally:
        _current = None
        for name, function in originals.items():
            setattr(tune, name, function)


def _session() -> FunctionSession:
    if _current is None:
        raise RuntimeError("ray.tune was called outside of a trial")
    return _current


def _copy(checkpoint: tune.Checkpoint, folder: Path) -> None:
    with checkpoint.as_directory() as source:
        shutil.copytree(source, folder, dirs_exist_ok=True)
