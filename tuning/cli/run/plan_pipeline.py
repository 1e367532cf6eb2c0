"""`tune plan` of a pipeline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuning.cli.formatting import duration, limits, make_console, print_lines
from tuning.cli.json_output import print_json

if TYPE_CHECKING:
    from results.records.pipeline import PipelinePaths
    from search_spaces.pipeline.loading import LoadedPipeline
    from tuning.controller.resources.forecast import Forecast

_PLAN = ("stage", "kind", "after", "state", "budget", "forecast")


def plan_pipeline(
    file: Path,
    overrides: Sequence[str],
    storage: str | None,
    address: str | None,
    *,
    as_json: bool = False,
) -> None:
    """Print the stages of a pipeline file, what each needs, and what the whole may take."""
    from rich.text import Text

    from results.models.stages import read_stages
    from results.sweep_folder.folder import resolve_storage
    from search_spaces.pipeline.loading import load_pipeline
    from tuning.cli.table import Table
    from tuning.cluster.connection import ray_cluster
    from tuning.pipelines.check import check_pipeline, pipeline_notes
    from tuning.pipelines.folder import find_pipeline
    from tuning.pipelines.keys import stage_keys

    pipeline, folders = load_pipeline(file, overrides), resolve_storage(storage)
    check_pipeline(pipeline)
    found, done = find_pipeline(str(folders.root / pipeline.name), storage), set[str]()
    if found:
        records, keys = read_stages(found), stage_keys(pipeline, folders.cache)
        known = {(name, r.key) for name, r in records.stages.items() if r.done}
        done = {
            name
            for name, key in keys.items()
            if (name, key) in known or found.earlier(name, key).name in records.earlier
        }
    console = make_console()
    console.quiet = as_json
    asking = console.status("asking Ray for the resources of the cluster")
    with asking, ray_cluster(address) as nodes:
        forecasts = _forecasts(pipeline, found, nodes)
    if as_json:
        return print_json(_facts(pipeline, forecasts, done))
    rows = _rows(pipeline, forecasts, done)
    console.print(Text.assemble((pipeline.name, "bold"), f": {len(pipeline.stages)} stages"))
    console.print(Table.of(_PLAN, rows, flexible=("after", "budget", "forecast")))
    print_lines(console, *pipeline_notes(pipeline), *_whole(pipeline, forecasts, done))


def _rows(
    pipeline: LoadedPipeline, forecasts: Mapping[str, Forecast], done: set[str]
) -> list[list[str]]:
    from search_spaces.pipeline.graph import dependencies

    rows = []
    for name in pipeline.order:
        sweep = pipeline.sweeps.get(name)
        rows.append(
            [
                name,
                pipeline.stages[name].kind,
                ", ".join(dependencies(name, pipeline.stages)) or "-",
                "complete" if name in done else "to run",
                limits(sweep.spec.budget) if sweep else "-",
                _forecast(forecasts.get(name), name in done) if sweep else "-",
            ]
        )
    return rows


def _facts(
    pipeline: LoadedPipeline, forecasts: Mapping[str, Forecast], done: set[str]
) -> dict[str, Any]:
    from search_spaces.pipeline.graph import dependencies

    stages = [
        {
            "name": name,
            "kind": pipeline.stages[name].kind,
            "after": list(dependencies(name, pipeline.stages)),
            "complete": name in done,
            "trials": pipeline.sweeps[name].spec.budget.trials if name in pipeline.sweeps else None,
            "forecast": asdict(forecasts[name]) if name in forecasts else None,
        }
        for name in pipeline.order
    ]
    return {"pipeline": pipeline.name, "stages": stages}


def _forecasts(
    pipeline: LoadedPipeline, paths: PipelinePaths | None, nodes: Sequence[Any]
) -> dict[str, Forecast]:
    """What each train stage may take, by its trials in an earlier run of this pipeline."""
    from tuning.controller.resources.forecast import earlier_trial_cost, forecast
    from tuning.controller.resources.placement import compute_placement

    made = {}
    for name, loaded in pipeline.sweeps.items():
        spec, at_once = loaded.spec, compute_placement(loaded.spec.resources, nodes).concurrency
        known = earlier_trial_cost(paths.stages, spec) if paths else None
        made[name] = forecast(spec.budget, [], known and known[1], at_once, prices=spec.prices)
    return {name: one for name, one in made.items() if one is not None}


def _forecast(found: Forecast | None, done: bool) -> str:
    if done:
        return "nothing"
    return f"about {duration(found.seconds)}, {found.cost}" if found else "unknown"


def _whole(
    pipeline: LoadedPipeline, forecasts: Mapping[str, Forecast], done: set[str]
) -> Iterator[str]:
    """The budget and the forecast of all train stages."""
    given = limits(pipeline.head.budget)
    left = [name for name in pipeline.sweeps if name not in done]
    trials = sum(pipeline.sweeps[name].spec.budget.trials or 0 for name in left)
    yield f"budget     {given or 'that of each stage'}; {trials} trials to run"
    known = [forecasts[name] for name in left if name in forecasts]
    seconds = duration(sum(one.seconds for one in known))
    if len(known) == len(left):
        yield f"forecast   about {seconds} of train stages"
    else:
        missing = ", ".join(name for name in left if name not in forecasts)
        yield f"forecast   none: no earlier run of this pipeline has trials of {missing} as long"
