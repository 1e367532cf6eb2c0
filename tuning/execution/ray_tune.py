"""Lets Ray Tune run a sweep: thin shells around `SweepRun`.

To Ray Tune a trial is one attempt of ours: retries and resumed trials come back as new Tune trials
of the same trial id, because we keep the books (configuration, rungs, budgets) and Tune does not.
"""

from __future__ import annotations

import logging
from dataclasses import asdict
from functools import partial
from typing import Any

from ray import tune
from ray.tune.schedulers import FIFOScheduler
from ray.tune.search import Searcher

from results.records import Report
from trainables.fit import TrialError
from trainables.launch import Ended, Runner, Shape, launch, open_mailbox, reusable
from trainables.worker import Answer, TrialJob
from tuning.execution.placement import Placement
from tuning.execution.sweep import SweepRun
from tuning.search.schedulers import Decision

_JOB, _REPORT, _ERROR = "job", "report", "error"


class TrialActor(tune.Trainable):
    """Ray Tune's handle on a runner: one `step` is one report of the trial.

    Asking for the next step is the answer `continue` to the report before; being reset or cleaned
    up is the answer `stop`.
    """

    def setup(self, config: dict[str, Any], **given: Any) -> None:
        """Start the runner, and the first trial on it."""
        self._launch = partial(launch, given["code"], given["shape"], given["mailbox"])
        self._runner: Runner | None = None
        self._running = self._waiting = False
        self._begin(config)

    def step(self) -> dict[str, Any]:
        """Wait for the trial's next report, its end or its failure."""
        assert self._runner is not None
        try:
            if self._waiting:
                self._runner.answer(Answer.CONTINUE)
            self._waiting = False
            event = self._runner.next_event()
        except TrialError as e:
            self._drop()
            return {_ERROR: str(e), "done": True}
        if isinstance(event, Ended):
            self._running = False
            return {"done": True}
        self._waiting = True
        return {_REPORT: event.report.model_dump_json()}  # text: Tune flattens mappings

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Stop the trial that was, and begin the next on the same workers."""
        self._settle()
        self._begin(new_config)
        return True

    def cleanup(self) -> None:
        """Stop the trial and free the workers."""
        self._settle()
        self._drop()

    def _begin(self, config: dict[str, Any]) -> None:
        self._runner = self._runner or self._launch()
        self._running, self._waiting = True, False
        self._runner.start(TrialJob(**config[_JOB]))

    def _settle(self) -> None:
        """Bring the runner to where it can take a trial: stop the current one, wait for it."""
        if self._runner is None or not self._running:
            return
        try:
            if self._waiting:
                self._runner.answer(Answer.STOP)
            while not isinstance(self._runner.next_event(), Ended):
                self._runner.answer(Answer.STOP)
        except TrialError:
            self._drop()
        self._running = self._waiting = False

    def _drop(self) -> None:
        if self._runner is not None:
            self._runner.close()
        self._runner, self._running, self._waiting = None, False, False


class SweepSearcher(Searcher):
    """Hands Ray Tune the attempts that are next, and the books what became of them."""

    def __init__(self, run: SweepRun, concurrency: int) -> None:
        super().__init__()
        self._run, self._concurrency = run, concurrency
        self.trial_of: dict[str, str] = {}

    def suggest(self, trial_id: str) -> Any:
        """The next attempt; None when all slots are taken, FINISHED when nothing is left."""
        if self._run.finished:
            return Searcher.FINISHED
        if len(self.trial_of) >= self._concurrency:
            return None
        job = self._run.next_trial()
        if job is None:
            return None
        self.trial_of[trial_id] = job.trial_id
        return {_JOB: asdict(job)}

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """An attempt ended: by itself, by its own failure, or because its actor died."""
        ours = self.trial_of.pop(trial_id, None)
        if ours is None or self._run.interrupted:
            return
        if error:
            self._run.on_failed(ours, "the trial's driving process died")
        elif result and result.get(_ERROR):
            self._run.on_failed(ours, result[_ERROR])
        else:
            self._run.on_ended(ours)

    def save_to_dir(self, checkpoint_dir: str, session_str: str = "default") -> None:
        """Nothing: the sweep folder is the truth."""

    def __getstate__(self) -> dict[str, Any]:
        return {}  # Tune pickles its searcher for a restore that we never do


class BookScheduler(FIFOScheduler):
    """Asks the books after each report."""

    def __init__(self, run: SweepRun, searcher: SweepSearcher) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._run, self._searcher = run, searcher

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        """CONTINUE or STOP."""
        ours = self._searcher.trial_of.get(trial.trial_id)
        if ours is None or _REPORT not in result:
            return self.CONTINUE
        decision = self._run.on_report(ours, Report.model_validate_json(result[_REPORT]))
        return self.CONTINUE if decision is Decision.CONTINUE else self.STOP

    def __getstate__(self) -> dict[str, Any]:
        return {}


class _Stopper(tune.Stopper):
    """Ends Tune's loop when the sweep was interrupted."""

    def __init__(self, run: SweepRun) -> None:
        self._run = run

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return False

    def stop_all(self) -> bool:
        return self._run.interrupted

    def __getstate__(self) -> dict[str, Any]:
        return {}


def drive(run: SweepRun, placement: Placement) -> None:
    """Run a sweep's trials until its budget is spent or it is interrupted. Ray must be up."""
    logging.getLogger("ray.tune").setLevel(logging.ERROR)
    spec, mailbox = run.spec, open_mailbox()
    shape = Shape(
        placement.workers,
        placement.cpus_per_worker,
        placement.gpus_per_worker,
        spec.failure.start_timeout,
        str(run.paths.ray / "train"),
    )
    actor = tune.with_parameters(TrialActor, code=spec.trainable, shape=shape, mailbox=mailbox)
    searcher = SweepSearcher(run, placement.concurrency)
    tune.Tuner(
        # No CPU: the workers need them all. Tune demands some resource, so a byte of memory.
        tune.with_resources(actor, {"cpu": 0, "memory": 1}),
        tune_config=tune.TuneConfig(
            search_alg=searcher,
            scheduler=BookScheduler(run, searcher),
            num_samples=-1,
            reuse_actors=reusable(spec.trainable, spec.resources.isolation),
            trial_dirname_creator=lambda trial: str(trial.trial_id),
        ),
        run_config=tune.RunConfig(
            name="tune",
            storage_path=str(run.paths.ray),
            stop=_Stopper(run),
            checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
            verbose=0,
        ),
    ).fit()
