"""The budget of the whole pipeline: a stage gets what the others left."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from results.analysis.cost import total_cost
from results.paths import SweepPaths
from results.records.pipeline import PipelinePaths, read_stages
from results.records.spec_file import read_spec
from results.records.trial import read_trials
from results.sweep_folder.folder import session_times
from search_spaces.errors import UserError
from search_spaces.loading.sweep_file import LoadedSweep
from search_spaces.pipeline.loading import LoadedPipeline
from tuning.pipelines.base import Surroundings

_KEYS = ("trials", "time", "cpu_hours", "gpu_hours", "cost")


def within(loaded: LoadedSweep, around: Surroundings) -> LoadedSweep:
    """The sweep with at most what is left of the whole budget.

    Raises:
        UserError: nothing is left.
    """
    own = loaded.spec.budget
    left = left_of_budget(around.pipeline, around.paths, loaded.spec.name)
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
    begun = [n for n in pipeline.sweeps if n != stage and (n in records or n in running)]
    used = dict.fromkeys(_KEYS, 0.0)
    for name in begun:
        done = name in records and records[name].done
        for key, amount in _used(pipeline, paths.sweep(name), name, done=done).items():
            used[key] += amount
    used["time"] = _seconds_of([paths.sweep(name) for name in begun])
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
    """Trials and hours of a sweep; before its end, the most that it may use."""
    if not paths.is_sweep:  # it is about to begin
        budget, spent = pipeline.sweeps[name].spec.budget, dict.fromkeys(_KEYS, 0.0)
    else:
        records, spec = read_trials(paths), read_spec(paths)
        cost, budget = total_cost(records, spec.prices), spec.budget
        spent = {"trials": len(records), "cpu_hours": cost.cpu_hours, "gpu_hours": cost.gpu_hours}
        spent["cost"] = cost.cost
    if done:
        return spent
    most = {key: getattr(budget, key) for key in spent}
    whole = {key: getattr(pipeline.head.budget, key) or 0.0 for key in spent}
    return {
        k: max(spent[k], whole[k] if most[k] is None else most[k]) for k in spent if k != "time"
    }


def _seconds_of(sweeps: Collection[SweepPaths]) -> float:
    """Seconds in which one of the sweeps ran."""
    times = sorted(time for paths in sweeps if paths.is_sweep for time in session_times(paths))
    total, until = 0.0, 0.0
    for began, ended in times:
        total += max(0.0, ended - max(began, until))
        until = max(until, ended)
    return total
