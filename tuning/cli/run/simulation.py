"""`tune plan --simulate`: what a layout needs, on any number of ranks, without them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from search_spaces.errors import UserError, quantity
from tuning.cli.formatting import echo, size
from tuning.cli.json_output import print_json

if TYPE_CHECKING:
    from search_spaces.layout import Layout
    from search_spaces.spec.sweep import SweepSpec
    from trainables.causal_lm.config import CausalLMConfig
    from trainables.parallel.footprint import Footprint

SIMULATED = ("causal_lm", "sft")
NODES = (1, 2, 4, 8)
KEPT = ("weights", "gradients", "optimizer")


def simulate_file(
    file: Path, overrides: list[str], workers: int | None, *, asked: bool, as_json: bool
) -> None:
    """Print memory per rank, bytes on each axis, and efficiency of the layout of a sweep file.

    Raises:
        UserError: the file has mistakes, or its trainable cannot be simulated.
    """
    from search_spaces.loading.sweep_file import load_sweep
    from search_spaces.pipeline.loading import is_pipeline_file
    from tuning.controller.preflight.checks import preflight

    if not asked:
        raise UserError("--workers has an effect only with --simulate; set resources.workers")
    if is_pipeline_file(file):
        raise UserError(f"{file}: --simulate takes a sweep file, of a stage of the pipeline")
    more = [f"resources.workers={workers}"] if workers is not None else []
    loaded = load_sweep(file, [*overrides, *more])
    if loaded.spec.trainable not in SIMULATED:
        names = ", ".join(SIMULATED)
        raise UserError(f"trainable {loaded.spec.trainable}: --simulate takes {names}")
    config, layout = _largest(loaded.spec, preflight(loaded))
    ranks, steps = _stages(config, layout), _steps(loaded.spec, config, layout)
    if as_json:
        sizes = {"layout": layout.as_written(), "ranks": layout.num_ranks}
        sweep = {"sweep": loaded.spec.name, "trainable": loaded.spec.trainable}
        return print_json({**sweep, **sizes, "stages": list(map(asdict, ranks)), "nodes": steps})
    echo(f"layout     {layout}: {layout.num_ranks} ranks")
    for number, rank in enumerate(ranks):
        for line in _rank_lines(f"stage {number}" if layout.pp > 1 else "rank", rank, layout):
            echo(line)
    for line in _efficiency_lines(steps):
        echo(line)


def _largest(spec: SweepSpec, sampled: list[dict[str, Any]]) -> tuple[CausalLMConfig, Layout]:
    """The largest model of those sampled, and its layout."""
    from trainables.registry import resolve
    from tuning.controller.resources.layouts import taken_layout

    kind: Any = resolve(spec.trainable).Config
    configs = [(kind.model_validate(spec.nest(params)), params) for params in sampled]
    config, params = max(configs, key=lambda c: c[0].checkpoint_bytes or 0)
    written = spec.resources.written_layout.resolve(spec.resources.max_workers)
    return config, taken_layout(spec, params) or written


def _stages(config: CausalLMConfig, layout: Layout) -> list[Footprint]:
    """The first rank of each of `pp`: others need as much, or less."""
    from trainables.causal_lm.simulation import simulate

    step = layout.num_ranks // layout.pp
    return [simulate(config, layout, stage * step) for stage in range(layout.pp)]


def _rank_lines(name: str, rank: Footprint, layout: Layout) -> Iterator[str]:
    kept = ", ".join(f"{part} {size(getattr(rank, part))}" for part in KEPT)
    if layout.cpu_offload:
        yield f"{name:<10} {size(rank.activations)} at most on the device, activations"
        yield f"{'':<10} {size(sum(getattr(rank, part) for part in KEPT))} on the host: {kept}"
    else:
        activations = f"activations {size(rank.activations)}"
        yield f"{name:<10} {size(rank.peak)} at most: {kept}, {activations}"
    sent = [f"{axis} {size(t.bytes)} ({t.messages} messages)" for axis, t in rank.traffic.items()]
    yield f"{'':<10} {rank.flops / 1e12:.3g} TFLOP a step; sends {', '.join(sent) or 'nothing'}"


def _steps(spec: SweepSpec, config: CausalLMConfig, layout: Layout) -> list[dict[str, Any]] | None:
    """Seconds and efficiency of a step on more machines; None if the cluster is not described."""
    from search_spaces.spec.layout import REST, LayoutSpec
    from tuning.controller.resources.efficiency import TARGETS, StepTime, grown, step_time

    cluster = spec.cluster
    if cluster.bandwidth is None or cluster.tflops is None:
        return None
    per_node = cluster.gpus or max(1, int(cluster.cpus // spec.resources.cpus_per_worker))
    shards = spec.resources.chooses_layout and layout.dp_shard > 1
    written = LayoutSpec(dp_shard=REST) if shards else spec.resources.written_layout
    first: StepTime | None = None
    steps: list[dict[str, Any]] = []
    for nodes in NODES:
        step: dict[str, Any] = {"nodes": nodes, "ranks": nodes * per_node, "seconds": None}
        step |= {"efficiency": None, "target": TARGETS.get(nodes)}
        larger = grown(written, layout, nodes * per_node)
        if larger is not None:
            batch = config.batch_size * larger.data_parallel // layout.data_parallel
            each = _stages(config.model_copy(update={"batch_size": batch}), larger)
            time = step_time(each, larger, cluster, per_node)
            step["seconds"] = time.least, time.most
            if first is not None:
                step["efficiency"] = sorted((first.most / time.most, first.least / time.least))
            first = first or time
        steps.append(step)
    return steps


def _efficiency_lines(steps: list[dict[str, Any]] | None) -> Iterator[str]:
    if steps is None:
        yield "efficiency unknown: set cluster.bandwidth and cluster.tflops"
    for step in steps or ():
        nodes = f"{quantity(step['nodes'], 'node'):<11}"
        if step["seconds"] is None:
            yield f"{nodes}this layout does not have {step['ranks']} ranks"
            continue
        line = "a step {:.3g} to {:.3g} s".format(*step["seconds"])
        if step["efficiency"] is not None:
            least, most = step["efficiency"]
            line += f", {_held(least, most, step['target'])}"
        yield nodes + line


def _held(least: float, most: float, target: float) -> str:
    """The efficiency, and whether it holds a target."""
    held = "holds" if least >= target else "misses" if most < target else "may miss"
    return f"{least:.0%} to {most:.0%} as efficient: {held} {target:.0%}"
