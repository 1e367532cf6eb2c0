"""`tune probe`: measures the layouts that fit, and keeps the fastest for `layout: auto`."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from search_spaces.errors import UserError
from tuning.cli.formatting import echo, number
from tuning.cli.json_output import print_json
from tuning.cli.look.report import Html, write_page
from tuning.cli.options import File, Json, Set, StorageDir

if TYPE_CHECKING:
    from search_spaces.layout import Layout
    from search_spaces.spec.sweep import SweepSpec
    from tuning.controller.resources.layouts import Choice
    from tuning.evaluation.probe import Measured
    from tuning.evaluation.progress import PrintLine


def probe(
    file: File,
    set_: Set = [],  # noqa: B006 - typer reads the default, it is never changed
    steps: Annotated[int, typer.Option(min=8, help="Training steps on each layout.")] = 20,
    timeout: Annotated[
        float, typer.Option(min=1, help="Longest time of one layout (seconds).")
    ] = 600.0,
    coordinates: Annotated[
        bool,
        typer.Option("--coordinates", help="Check fixed.parametrization instead, at four sizes."),
    ] = False,
    html: Html = None,
    json_: Json = False,
    storage: StorageDir = None,
) -> None:
    """Measure the layouts that fit, and record the fastest.

    Some steps are trained on each layout, on this machine. It takes the configuration that needs
    most memory; --set gives another one. Trials of its shape in this storage take the fastest
    layout with resources.layout: auto.

    With --coordinates: train a causal_lm for some steps at an eighth to the whole of its width, and
    its depth with completep. Where activations change by a power of the size, settings of a small
    model do not hold for a large one, and the exit code is 1. --html draws it.

    Example: tune probe search_spaces/llm.yaml --set resources.memory_per_worker=4
    """
    if coordinates:
        _check_coordinates(file, set_, html, json_, storage)
    elif html is not None:
        raise UserError("--html draws --coordinates; give both")
    else:
        _probe_layouts(file, set_, steps, timeout, json_, storage)


def _probe_layouts(
    file: Path, set_: list[str], steps: int, timeout: float, json_: bool, storage: str | None
) -> None:
    """Print and record what the layouts that fit need."""
    from results.sweep_folder.folder import resolve_storage
    from search_spaces.loading.sweep_file import load_sweep
    from tuning.controller.preflight.checks import preflight
    from tuning.controller.preflight.relative_paths import with_absolute_fixed
    from tuning.controller.resources.layouts import largest_choice, worker_memory
    from tuning.controller.sweep_dir.create import with_new_defaults

    loaded = load_sweep(file, ["resources.layout=auto", *set_])
    if not loaded.spec.resources.chooses_layout:
        raise UserError("tune probe measures layouts; leave resources.layout out of --set")
    sampled = preflight(loaded, files=True)
    spec = with_new_defaults(with_absolute_fixed(loaded))
    memory = worker_memory(spec.resources)
    assert memory is not None, "preflight has refused it"
    params, choice = largest_choice(spec, sampled, memory)
    root = resolve_storage(storage or spec.storage).root
    say: PrintLine = (lambda line: None) if json_ else echo
    say(f"{spec.name}: {' '.join(f'{k}={number(v)}' for k, v in params.items())}")
    measured = _measure(spec, dict(params), choice, root, steps, timeout, say)
    if json_:
        print_json({"sweep": spec.name, "params": params, "layouts": [_facts(m) for m in measured]})
    if all(m.problem for m in measured):
        raise typer.Exit(1)


def _check_coordinates(
    file: Path, set_: list[str], html: Path | None, json_: bool, storage: str | None
) -> None:
    """Print how activations change with the size of the model."""
    from results.paths import Storage
    from results.report.transfer_page import write_coordinates
    from results.sweep_folder.folder import resolve_storage
    from search_spaces.loading.sweep_file import load_sweep
    from tuning.controller.preflight.checks import preflight
    from tuning.controller.preflight.relative_paths import with_absolute_fixed

    loaded = load_sweep(file, set_)
    params, spec = preflight(loaded, files=True)[0], with_absolute_fixed(loaded)
    if spec.trainable != "causal_lm":
        raise UserError(f"tune probe --coordinates checks causal_lm, not {spec.trainable}")
    from trainables.causal_lm.config import CausalLMConfig
    from trainables.causal_lm.coordinates import coordinates

    config, facts = CausalLMConfig.model_validate(spec.nest(params)), []
    say: PrintLine = (lambda line: None) if json_ else echo
    say(f"{spec.name}: {' '.join(f'{k}={number(v)}' for k, v in params.items())}")
    for one in coordinates(config, Storage(resolve_storage(storage or spec.storage).root).cache):
        facts.append({**asdict(one), "exponent": one.exponent, "flat": one.is_flat})
        changes = "  ".join(f"{n}: {v:.3g}" for n, v in zip(one.sizes, one.changes, strict=True))
        power = f"~ size^{one.exponent:.2f}" + ("" if one.is_flat else "  not flat")
        say(f"{one.axis:11}  {one.name:9}  {changes}  {power}")
    wrong = [f"{one['name']} by {one['axis']}" for one in facts if not one["flat"]]
    if html is not None:
        write = partial(write_coordinates, f"{spec.name}: {config.parametrization}", facts)
        say(f"page {write_page(html, write)}")
    if json_:
        print_json({"sweep": spec.name, "params": params, "coordinates": facts})
    result = f"not flat: {', '.join(wrong)}" if wrong else "flat at all sizes"
    say(f"parametrization {config.parametrization}: {result}")
    if wrong:
        raise typer.Exit(1)


def _measure(
    spec: SweepSpec,
    params: dict[str, Any],
    choice: Choice,
    root: Path,
    steps: int,
    limit: float,
    say: PrintLine,
) -> list[Measured]:
    """Print and record what each layout needs."""
    from results.paths import Storage
    from tuning.controller.resources.layouts import Probes
    from tuning.evaluation.probe import measure_layout

    folder = Path(tempfile.mkdtemp(prefix="tune-probe-"))
    rates: dict[Layout, float] = {}
    found = []
    cache = Storage(root).cache
    for estimate in choice.fitting:
        measured = measure_layout(spec, params, estimate, folder, cache, steps, limit)
        found.append(measured)
        say(_line(measured))
        if not measured.problem:
            rates[estimate.layout] = measured.steps_per_second
    if len(rates) == len(choice.fitting):  # else a message names a log in the folder
        shutil.rmtree(folder)
    for workers in sorted({layout.num_ranks for layout in rates}):
        of_as_many = {one: rate for one, rate in rates.items() if one.num_ranks == workers}
        Probes(root).record(choice, workers, of_as_many)
    if rates:
        layout = max(rates, key=lambda one: rates[one]).as_written()
        say(f"fastest    {layout}, which trials of this shape take with resources.layout: auto")
        say(f'           for all trials: --set "resources.layout={layout}"')
    return found


def _facts(one: Measured) -> dict[str, Any]:
    return {
        "layout": one.estimate.layout.as_written(),
        "steps_per_second": None if one.problem else one.steps_per_second,
        "bytes": None if one.problem else one.peak,
        "estimated_bytes": one.estimate.memory.peak,
        "problem": one.problem or None,
    }


def _line(one: Measured) -> str:
    from tuning.controller.resources.layouts import gib

    layout = one.estimate.layout.as_written()
    if one.problem:
        return f"{layout}: failed: {one.problem}"
    rate, needed = number(one.steps_per_second), gib(one.estimate.memory.peak)
    return f"{layout}: {rate} steps/s, {gib(one.peak)} a rank at most (by arithmetic {needed})"
