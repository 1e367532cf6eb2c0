"""`tune plan` checks a sweep file and estimates its cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from search_spaces.errors import UserError, quantity
from tuning.cli.formatting import duration, limits, make_console, print_lines, size
from tuning.cli.json_output import print_json
from tuning.cli.options import Address, File, Insecure, Json, Set, StorageDir

if TYPE_CHECKING:
    from rich.console import Console

    from results.paths import Storage
    from search_spaces.spec.sweep import SweepSpec
    from tuning.controller.resources.forecast import Forecast
    from tuning.controller.resources.placement import Node, Placement

_MOST_LAYOUTS = 16
"""Layouts that are listed."""


def plan(
    file: File,
    set_: Set = [],  # noqa: B006 - typer reads the default, it is never changed
    storage: StorageDir = None,
    address: Address = None,
    insecure: Insecure = False,
    samples: Annotated[int, typer.Option(min=0, help="Number of configurations to show.")] = 3,
    simulate: Annotated[
        bool,
        typer.Option("--simulate", help="Memory, transfers and efficiency of the layout."),
    ] = False,
    workers: Annotated[
        int | None,
        typer.Option(min=1, help="With --simulate: ranks of a trial; default: those of the file."),
    ] = None,
    json_: Json = False,
) -> None:
    """Check a file and estimate what it needs, without training.

    Example: tune plan search_spaces/llm.yaml
    """
    from search_spaces.pipeline.loading import is_pipeline_file
    from tuning.cli.run.plan_pipeline import plan_pipeline
    from tuning.cluster.connection import check_cluster_auth

    if simulate or workers is not None:
        from tuning.cli.run.simulation import simulate_file

        return simulate_file(file, set_, workers, asked=simulate, as_json=json_)
    check_cluster_auth(address, insecure)
    if is_pipeline_file(file):
        plan_pipeline(file, set_, storage, address, as_json=json_)
    else:
        facts = _plan_sweep(file, set_, storage, address, samples, quiet=json_)
        if json_:
            print_json(facts)


def _plan_sweep(
    file: Path,
    overrides: list[str],
    storage: str | None,
    address: str | None,
    samples: int,
    *,
    quiet: bool,
) -> dict[str, Any]:
    """Print the plan of a sweep, unless `quiet`; returns it as data."""
    from rich.text import Text

    from results.storage.probe import check_storage
    from results.sweep_folder.folder import resolve_storage
    from search_spaces.loading.sweep_file import load_sweep
    from tuning.cli.run.space_table import rule_lines, space_table
    from tuning.controller.preflight.checks import preflight
    from tuning.controller.preflight.relative_paths import file_notes
    from tuning.controller.sweep_dir.create import frozen_spec

    loaded = load_sweep(file, overrides)
    spec = loaded.spec
    sampled = preflight(loaded, files=address is None)
    folders = resolve_storage(storage or spec.storage)
    check_storage(folders.root)
    notes = [*file_notes(loaded, files=address is None), *rule_lines(spec)]
    notes += [*_transfer_lines(frozen_spec(loaded), storage), *_server_lines(spec, folders)]
    objectives = ", ".join(f"{o.mode} {o.metric}" for o in spec.objectives)
    title = Text.assemble((spec.name, "bold"), f": {spec.trainable}, {objectives}")
    console = make_console()
    console.quiet = quiet
    console.print(title, soft_wrap=True)
    console.print(space_table(spec, sampled[:samples]))
    print_lines(console, *notes)
    facts = _plan_resources(spec, sampled, folders, address, console)
    return {**facts, "samples": sampled[:samples], "lines": [*notes, *facts["lines"]]}


def _plan_resources(
    spec: SweepSpec,
    sampled: list[dict[str, Any]],
    folders: Storage,
    address: str | None,
    console: Console,
) -> dict[str, Any]:
    """Print and return what a sweep needs, of what the cluster has."""
    from tuning.cluster.connection import ray_cluster
    from tuning.controller.resources.budget import check_gpu_budget
    from tuning.controller.resources.placement import compute_placement

    status = "asking Ray for the resources of the cluster"
    with console.status(status), ray_cluster(address) as nodes:
        placement = compute_placement(spec.resources, nodes)
    lines = list(_placement_lines(spec, placement, nodes))
    lines += layout_lines(spec, sampled, folders.root, placement.worker_slots)
    print_lines(console, *lines)
    check_gpu_budget(spec.budget, placement)
    forecast, source = _forecast(spec, folders, placement.concurrency)
    costs = [*cost_lines(spec, sampled, folders.root), source]
    print_lines(console, *costs)
    return {**_facts(spec, sampled, placement, forecast), "lines": [*lines, *costs]}


def _facts(
    spec: SweepSpec, sampled: list[dict[str, Any]], placement: Placement, forecast: Forecast | None
) -> dict[str, Any]:
    from tuning.controller.preflight.samples import largest_checkpoint
    from tuning.search.auto import choose_scheduler, choose_searcher

    needed = placement.allocation(spec.resources.max_workers)
    return {
        "sweep": spec.name,
        "trainable": spec.trainable,
        "objectives": {o.metric: o.mode for o in spec.objectives},
        "trial": {"workers": needed.workers, "cpus": needed.cpus, "gpus": needed.gpus},
        "at_once": placement.concurrency,
        "searcher": choose_searcher(spec).name,
        "scheduler": choose_scheduler(spec).name,
        "budget": spec.budget.model_dump(mode="json", exclude_none=True),
        "checkpoint_bytes": largest_checkpoint(spec, sampled),
        "forecast": asdict(forecast) if forecast else None,
    }


def _placement_lines(spec: SweepSpec, placement: Placement, nodes: list[Node]) -> Iterator[str]:
    """What a trial needs, and what the cluster has."""
    from trainables.registry import resolve
    from tuning.controller.resources.placement import (
        describe_nodes,
        no_cpu_for_tasks,
        unused_gpus,
        unused_nccl,
    )

    yield f"trial      {placement.request_summary}"
    yield f"cluster    {describe_nodes(nodes)}"
    yield f"at once    {placement.concurrency} of {placement.max_trials} that fit"
    if placement.elastic_summary:
        yield f"workers    {placement.elastic_summary}"
    if placement.layout_summary:
        yield f"layout     {placement.layout_summary}"
    if gpus := placement.gpu_sharing_summary or unused_gpus(placement, nodes):
        yield f"GPUs       {gpus}"
    if problem := unused_nccl(placement):
        yield f"NCCL       {problem}"
    if resolve(spec.trainable).reads_datasets and (problem := no_cpu_for_tasks(placement, nodes)):
        yield f"Ray Data   {problem}"


def layout_lines(
    spec: SweepSpec, sampled: list[dict[str, Any]], storage: Path, slots: int
) -> Iterator[str]:
    """With `layout: auto`: those of the configuration that needs most, and which are taken.

    Args:
        spec: of the sweep.
        sampled: checked parameters.
        storage: of sweeps.
        slots: workers that fit the cluster.
    """
    from tuning.controller.resources.layouts import (
        Probes,
        choice_of,
        first_fitting,
        gib,
        largest_choice,
        worker_memory,
    )

    memory = worker_memory(spec.resources) if spec.resources.chooses_layout else None
    if memory is None:
        return
    probes = Probes(storage)
    taken = Counter[str]()
    for config in map(spec.nest, sampled):
        layout = first_fitting(spec, config, memory)
        if layout and probes.exist:
            of_as_many = choice_of(spec, config, memory, layout.num_ranks)
            if known := probes.add_to(of_as_many).taken:
                layout = known.layout
        taken.update([layout.as_written()] if layout else [])
    of = ", ".join(f"{layout} by {number}" for layout, number in taken.most_common())
    yield f"layout     auto: taken {of} of {len(sampled)} configurations, with {memory} a worker"
    largest = probes.add_to(largest_choice(spec, sampled, memory)[1])
    for one in largest.estimates[:_MOST_LAYOUTS]:
        mark = "taken" if one is largest.taken else "fits" if one in largest.fitting else "too much"
        m, name = one.memory, one.layout.as_written()
        parts = f"weights {gib(m.weights)}, activations {gib(m.activations)}"
        yield f"           {name}: {gib(m.peak)} a rank, {mark} ({parts})"
    if (fewest := min(one.ranks for one in largest.fitting)) > slots:
        yield f"           it needs {fewest} workers, and this cluster has room for {slots}"


def _transfer_lines(spec: SweepSpec, storage: str | None) -> list[str]:
    """The trials of other sweeps that the search would learn from, and the mirror."""
    from results.sweep_folder.copies.mirror import check_mirror
    from tuning.search.warm_start import describe_source, source_sweeps

    sources = source_sweeps(spec, storage or spec.storage)
    return [*(describe_source(source, spec) for source in sources), *check_mirror(spec)]


def _server_lines(spec: SweepSpec, folders: Storage) -> list[str]:
    """Why MLflow's server would take no runs; a database is made when the sweep begins."""
    from results.tracking.mlflow.client import check_reachable
    from tuning.controller.tracking.observer import tracking_uri

    uri = tracking_uri(spec, folders.sweep(spec.name)) if spec.tracking.name != "none" else ""
    try:
        if uri.startswith(("http://", "https://")):
            check_reachable(uri)
    except UserError as e:
        return [f"tracking   {e}"]
    return []


def cost_lines(spec: SweepSpec, sampled: list[dict[str, Any]], storage: Path) -> list[str]:
    """The searcher, the budget, and the disk space that checkpoints need."""
    from results.storage.atomic import free_bytes
    from tuning.controller.preflight.samples import largest_checkpoint
    from tuning.search.auto import choose_scheduler, choose_searcher

    trials = spec.budget.trials
    lines = [
        f"search     {choose_searcher(spec)}",
        f"scheduler  {choose_scheduler(spec)}",
        f"budget     {limits(spec.budget)}",
        *_repeat_lines(spec),
    ]
    each = largest_checkpoint(spec, sampled)
    if each is None:
        return [*lines, "disk       unknown until a trial has saved a checkpoint"]
    kept = each * spec.checkpoint.keep
    total = f", {size(kept * trials)} for {trials} trials" if trials else ""
    lines.append(
        f"disk       about {size(each)} a checkpoint, {spec.checkpoint.keep} kept: "
        f"{size(kept)} a trial{total}"
    )
    free = free_bytes(storage)
    if trials and kept * trials > free:
        lines.append(f"           only {size(free)} are free in {storage}: lower checkpoint.keep")
    return lines


def _repeat_lines(spec: SweepSpec) -> list[str]:
    """Whether configurations are tried again because the space has no others."""
    from tuning.search.compatibility import list_configurations

    found, trials = list_configurations(spec), spec.budget.trials
    if found is None or (trials is not None and trials <= len(found) * spec.replicates):
        return []
    count = quantity(len(found), "configuration")
    return [f"           the space has {count}: then they are repeated"]


def _forecast(spec: SweepSpec, storage: Storage, at_once: int) -> tuple[Forecast | None, str]:
    """What the sweep may take, and in words, estimated from an earlier sweep of the file."""
    from tuning.controller.resources.forecast import earlier_trial_cost, forecast

    found = earlier_trial_cost(storage, spec)
    left = forecast(spec.budget, [], found[1], at_once, prices=spec.prices) if found else None
    if found is None or left is None:
        return None, "forecast   none: no earlier sweep of this file has trials as long that ended"
    name, each = found
    source = f"{quantity(each.trials, 'trial')} of {name}"
    if each.wasted:
        source += f", where {each.wasted:.0%} of the cost was stopped, failed or preempted"
    return left, f"forecast   about {duration(left.seconds)} and {left.cost} (from {source})"
