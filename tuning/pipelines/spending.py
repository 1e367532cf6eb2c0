"""The budget of the whole pipeline: a stage gets what the others left."""

from __future__ import annotations

from dataclasses import replace

from results.paths import SweepPaths
from results.records.pipeline import read_stages
from results.records.trial import read_trials
from search_spaces.errors import UserError
from search_spaces.loading.sweep_file import LoadedSweep
from tuning.controller.resources.budget import total_cost
from tuning.controller.sweep_dir.folder import total_elapsed_s
from tuning.pipelines.base import Surroundings


def within(loaded: LoadedSweep, around: Surroundings) -> LoadedSweep:
    """The sweep with at most what is left of the whole budget.

    Raises:
        UserError: nothing is left.
    """
    whole = around.pipeline.head.budget
    spent = _spent([around.paths.sweep(name) for name in _begun(around)])
    own, less = loaded.spec.budget, {}
    for key, used in spent.items():
        limit, given = getattr(whole, key), getattr(own, key)
        if limit is None:
            continue
        left = limit - used
        if left <= 0:
            raise UserError(
                f"the budget of the pipeline is spent: {used:g} of {limit:g} {key}; raise "
                f"budget.{key} in its file"
            )
        if given is None or left < given:
            less[key] = left
    budget = own.model_copy(update=less)
    return replace(loaded, spec=loaded.spec.model_copy(update={"budget": budget}))


def _begun(around: Surroundings) -> list[str]:
    records = read_stages(around.paths).stages
    return [name for name in around.pipeline.sweeps if name in records]


def _spent(sweeps: list[SweepPaths]) -> dict[str, float]:
    found: dict[str, float] = {"trials": 0, "time": 0.0, "cpu_hours": 0.0, "gpu_hours": 0.0}
    for paths in sweeps:
        if not paths.is_sweep:
            continue
        records = read_trials(paths)
        cost = total_cost(records)
        found["trials"] += len(records)
        found["time"] += total_elapsed_s(paths)
        found["cpu_hours"] += cost.cpu_hours
        found["gpu_hours"] += cost.gpu_hours
    return found
