"""Whether a stage fits beside those that run: workers into the cluster, trials into the budget."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from functools import cached_property

from results.analysis.cost import close_silent_attempts, total_cost
from results.models.stages import read_stages
from results.paths import SweepPaths
from results.records.pipeline import PipelinePaths
from results.records.spec_file import read_spec
from results.records.trial import read_trials_with_reports
from results.sweep_folder.folder import session_times
from search_spaces.errors import UserError
from search_spaces.loading.sweep_file import LoadedSweep
from search_spaces.pipeline.loading import LoadedPipeline
from tuning.controller.resources.placement import Node, compute_placement
from tuning.pipelines.base import StageContext

Amount = tuple[float, float]
"""CPUs and GPUs of a worker."""

_KEYS = ("trials", "cpu_hours", "gpu_hours", "cost")


class CapacityCheck:
    """What is free of a pipeline's cluster and of its budget."""

    def __init__(self, context: StageContext) -> None:
        self._context = context

    def fits(self, name: str, running: Iterable[str]) -> bool:
        """Whether a stage can run beside others.

        Stages without a sweep use no resources of the cluster.
        """
        pipeline = self._context.pipeline
        others = [other for other in running if other in pipeline.sweeps]
        if name not in pipeline.sweeps or not others:
            return True
        try:
            left_of_budget(pipeline, self._context.paths, name, others)
            workers: list[Amount] = []
            for one in (name, *others):
                placement = compute_placement(pipeline.sweeps[one].spec.resources, self._nodes)
                each = placement.allocation(1)
                workers += [(each.cpus, each.gpus)] * sum(placement.workers_per_trial)
            return fit_together(workers, self._nodes)
        except UserError:  # it says so when it runs alone
            return False

    @cached_property
    def _nodes(self) -> Sequence[Node]:
        from tuning.cluster.warm_cluster import nodes_of

        return nodes_of(self._context.address)


def fit_together(workers: Iterable[Amount], nodes: Sequence[Node]) -> bool:
    """Whether all workers fit the machines at once; the largest are placed first."""
    free = [[node.cpus, node.gpus] for node in nodes]
    for cpus, gpus in sorted(workers, key=lambda w: (w[1], w[0]), reverse=True):
        place = next((f for f in free if f[0] + 1e-9 >= cpus and f[1] + 1e-9 >= gpus), None)
        if place is None:
            return False
        place[0] -= cpus
        place[1] -= gpus
    return True


def limit_budget(loaded: LoadedSweep, context: StageContext) -> LoadedSweep:
    """The sweep with at most what is left of the whole budget.

    Raises:
        UserError: nothing is left.
    """
    own = loaded.spec.budget
    left = left_of_budget(context.pipeline, context.paths, loaded.spec.name)
    less = {k: v for k, v in left.items() if (given := getattr(own, k)) is None or v < given}
    budget = own.model_copy(update=less)
    return replace(loaded, spec=loaded.spec.model_copy(update={"budget": budget}))


def left_of_budget(
    pipeline: LoadedPipeline, paths: PipelinePaths, stage: str, running: Collection[str] = ()
) -> dict[str, float]:
    """What the other train stages left of each limit of the whole.

    Of one that has begun and is not complete, all that it may use counts as used. Time that passes
    while several stages run counts once.

    Args:
        pipeline, paths: the pipeline and its folder.
        stage: that is to begin.
        running: stages that are about to begin too.

    Raises:
        UserError: nothing is left.
    """
    records = read_stages(paths).stages
    others = [n for n in pipeline.sweeps if n != stage and (n in records or n in running)]
    spent = [
        _used(pipeline, paths.sweep(n), n, done=n in records and records[n].done) for n in others
    ]
    used = {key: sum(one[key] for one in spent) for key in _KEYS}
    used["time"] = _seconds_of([paths.sweep(name) for name in others])
    left = {}
    for key, amount in used.items():
        limit = getattr(pipeline.head.budget, key)
        if limit is not None:
            left[key] = limit - amount
            if left[key] <= 0:
                raise UserError(
                    f"the budget of the pipeline is spent: {amount:g} of {limit:g} {key}; raise "
                    f"budget.{key} in its file"
                )
    if "trials" in left:
        left["trials"] = int(left["trials"])
    return left


def _used(
    pipeline: LoadedPipeline, paths: SweepPaths, name: str, *, done: bool
) -> dict[str, float]:
    """Trials, hours and cost of a sweep; before its end, the most that it may use."""
    if not paths.is_sweep:  # it is about to begin
        budget, spent = pipeline.sweeps[name].spec.budget, dict.fromkeys(_KEYS, 0.0)
    else:
        spec = read_spec(paths)
        trials = close_silent_attempts(paths, read_trials_with_reports(paths))
        records, budget = [record for record, _ in trials], spec.budget
        cost = total_cost(records, spec.prices)
        amounts = (len(records), cost.cpu_hours, cost.gpu_hours, cost.cost)
        spent = dict(zip(_KEYS, amounts, strict=True))
    if done:
        return spent
    whole = pipeline.head.budget
    most = {k: getattr(budget, k) for k in _KEYS}
    return {
        k: max(spent[k], (getattr(whole, k) or 0.0) if most[k] is None else most[k]) for k in _KEYS
    }


def _seconds_of(sweeps: Iterable[SweepPaths]) -> float:
    """Seconds in which one of the sweeps ran."""
    times = sorted(time for paths in sweeps if paths.is_sweep for time in session_times(paths))
    total, until = 0.0, 0.0
    for began, ended in times:
        total += max(0.0, ended - max(began, until))
        until = max(until, ended)
    return total
