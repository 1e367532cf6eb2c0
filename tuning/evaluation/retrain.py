"""Trains trials again, from their start, under other seeds."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass

from results.checkpoints.commit import newest_intact
from results.paths import SweepPaths
from results.records.trial import TrialRecord, read_reports
from results.trial_paths import TrialPaths
from search_spaces.errors import UserError
from search_spaces.spec.sweep import SweepSpec
from trainables.launch.rerun import RerunOrder, StopAfter
from trainables.launch.run_trial import output_to, run_local
from trainables.registry import resolve_for
from tuning.controller.trial_jobs import make_rerun_job
from tuning.evaluation.cluster_runs import run_on_cluster
from tuning.evaluation.load_model import config_of
from tuning.evaluation.progress import PrintLine, TrainingProgress
from tuning.evaluation.scoring import make_test_scorer

_SHORT_S = 60.0
"""Side by side on two cores these take half as long, and Ray needs about as much to start."""


@dataclass(frozen=True)
class Retraining:
    """A trial, the step at which it ends, and its new seed."""

    record: TrialRecord
    until: int
    seed: int


class Retrainer:
    """Trains and evaluates trials of a sweep once more.

    They train on workers like those of the sweep, as many trials side by side as fit the cluster.
    Trials of one worker without a GPU that took a minute together train in this process.

    Attributes:
        can_evaluate: whether models can be evaluated on the test split.
    """

    def __init__(self, paths: SweepPaths, spec: SweepSpec, address: str | None) -> None:
        self._paths, self._spec, self._address = paths, spec, address
        self._trainable = resolve_for(spec)
        self._trainable.check_runnable()
        self.can_evaluate = self._trainable.can_evaluate

    def train(self, trainings: Sequence[Retraining], print_line: PrintLine) -> None:
        """Train trials from their start to a step, under other seeds, in files of their own.

        Those that an earlier call has finished are not repeated.

        Raises:
            UserError: a configuration is not valid any more, the training code takes no seed, or a
                training failed, after the others have ended.
        """
        for record in {one.record.id: one.record for one in trainings}.values():
            config_of(self._spec, self._trainable, record)
        left = [one for one in trainings if not self._is_trained(one)]
        if not left:
            return
        names = {self._files(one).root: f"{one.record.id} seed {one.seed}" for one in left}
        orders = [self._order(one) for one in left]
        known = (
            f", {len(trainings) - len(left)} already trained" if len(left) < len(trainings) else ""
        )
        seconds = sum(one.record.seconds for one in left)
        here = not self._needs_cluster(left, seconds)
        print_line(
            f"trainings to do: {len(left)}{known}; the sweep took {seconds:.3g} s for as many"
            f"{'' if here else ', on the same number of workers'}"
        )
        run = (
            _run_here(self._spec, orders)
            if here
            else run_on_cluster(self._paths, self._spec, orders, self._address)
        )
        progress, problems = TrainingProgress(len(left), print_line), []
        try:
            with closing(run):
                for order, problem in run:
                    name = names[order.job.paths.root]
                    progress.step(f"{name} {'failed' if problem else 'trained'}")
                    if problem:
                        log = order.job.paths.log(order.job.attempt, 0)
                        problems.append(f"{name} could not be trained again: {problem}; log {log}")
        except KeyboardInterrupt:
            print_line("stopped: the same command goes on with the trainings that are left")
            raise
        if problems:
            raise UserError(*problems)

    def _files(self, training: Retraining) -> TrialPaths:
        return self._paths.retrained(training.record.id, training.seed)

    def _is_trained(self, training: Retraining) -> bool:
        files = self._files(training)
        done = read_reports(files)
        if not done or done[-1].step < training.until:
            return False
        return not self.can_evaluate or newest_intact(files, self._trainable.models) is not None

    def _order(self, training: Retraining) -> RerunOrder:
        record, seed, files = training.record, training.seed, self._files(training)
        config = self._trainable.with_seed({**record.config, **record.adjusted}, seed)
        own = {"attempt": max(files.attempts(), default=0) + 1, "repetition": f"/{seed}"}
        cache, until = str(self._paths.storage.cache), training.until
        job = make_rerun_job(
            self._spec, record, files.root, cache, until, seed=seed, config=config, **own
        )
        return RerunOrder(job, until)

    def _needs_cluster(self, trainings: Sequence[Retraining], seconds: float) -> bool:
        import torch

        alone = all(one.record.attempts[-1].workers == 1 for one in trainings)
        uses_ray = self._trainable.uses_ray_train
        return uses_ray or not alone or seconds > _SHORT_S or torch.cuda.is_available()

    def scores(
        self, record: TrialRecord, files: TrialPaths, seed: int | None = None
    ) -> dict[str, float]:
        """Metrics of the newest weights on the test split; empty if they cannot be evaluated.

        `seed` is that of a new training: the model of its start may depend on it.
        """
        if not self.can_evaluate:
            return {}
        if seed is not None:
            given = self._trainable.with_seed(record.config, seed)
            record = record.model_copy(update={"config": given})
        config = config_of(self._spec, self._trainable, record)
        found = newest_intact(files, self._trainable.models)
        if found is None:
            raise UserError(
                f"{files.root}: no intact checkpoint to evaluate; confirm with fresh seeds instead"
            )
        score = make_test_scorer(self._trainable, config, self._paths.storage.cache)
        return score(found.folder)


def _run_here(
    spec: SweepSpec, orders: Sequence[RerunOrder]
) -> Generator[tuple[RerunOrder, str], None, None]:
    """Train one after another in this process; an error of the training code is raised as it is."""
    for order in orders:
        job = order.job
        with _threads(spec.resources.cpus_per_worker), output_to(job.paths.log(job.attempt, 0)):
            run_local(job, StopAfter(order.until))
        yield order, ""


@contextmanager
def _threads(cpus: float) -> Iterator[None]:
    """Let torch use as many threads as a worker of Ray: more wait for each other on busy cores."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(max(1, int(cpus)))
    try:
        yield
    finally:
        torch.set_num_threads(before)
