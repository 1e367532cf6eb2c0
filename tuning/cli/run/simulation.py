"""`tune plan --simulate`: what a layout needs, on any number of ranks, without them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from search_spaces.errors import UserError
from tuning.cli.formatting import echo, size

if TYPE_CHECKING:
    from search_spaces.layout import Layout
    from search_spaces.loading.sweep_file import LoadedSweep
    from trainables.causal_lm.config import CausalLMConfig
    from trainables.parallel.footprint import Footprint
    from tuning.controller.resources.efficiency import StepTime

SIMULATED = ("causal_lm", "sft")
NODES = (1, 2, 4, 8)
KEPT = ("weights", "gradients", "optimizer")


def simulate_file(file: Path, overrides: list[str], workers: int | None, *, asked: bool) -> None:
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
    for line in _lines(loaded, preflight(loaded)):
        echo(line)


def _lines(loaded: LoadedSweep, sampled: list[dict[str, Any]]) -> Iterator[str]:
    from trainables.registry import resolve
    from tuning.controller.resources.layouts import taken_layout

    spec = loaded.spec
    kind: Any = resolve(spec.trainable).Config
    configs = [(kind.model_validate(spec.nest(params)), params) for params in sampled]
    config, params = max(configs, key=lambda c: c[0].checkpoint_bytes or 0)  # the largest model
    written = spec.resources.written_layout.resolve(spec.resources.max_workers)
    layout = taken_layout(spec, params) or written
    yield f"layout     {layout}: {layout.num_ranks} ranks"
    ranks = _stages(config, layout)
    for number, rank in enumerate(ranks):
        yield from _rank_lines(f"stage {number}" if layout.pp > 1 else "rank", rank, layout)
    yield from _efficiency_lines(loaded, config, layout)


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


def _efficiency_lines(loaded: LoadedSweep, config: CausalLMConfig, layout: Layout) -> Iterator[str]:
    from search_spaces.spec.layout import REST, LayoutSpec
    from tuning.controller.resources.efficiency import TARGETS, grown, step_time

    spec, cluster = loaded.spec, loaded.spec.cluster
    if cluster.bandwidth is None or cluster.tflops is None:
        yield "efficiency unknown: set cluster.bandwidth and cluster.tflops"
        return
    per_node = cluster.gpus or max(1, int(cluster.cpus // spec.resources.cpus_per_worker))
    shards = spec.resources.chooses_layout and layout.dp_shard > 1
    written = LayoutSpec(dp_shard=REST) if shards else spec.resources.written_layout
    first = None
    for nodes in NODES:
        larger = grown(written, layout, nodes * per_node)
        if larger is None:
            yield f"{nodes} nodes    this layout does not have {nodes * per_node} ranks"
            continue
        batch = config.batch_size * larger.data_parallel // layout.data_parallel
        each = _stages(config.model_copy(update={"batch_size": batch}), larger)
        time = step_time(each, larger, cluster, per_node)
        line = f"{nodes} nodes    a step {time.least:.3g} to {time.most:.3g} s"
        if first is not None:
            line += f", {_held(first, time, TARGETS[nodes])}"
        first = first or time
        yield line


def _held(first: StepTime, time: StepTime, target: float) -> str:
    """The efficiency, and whether it holds a target."""
    least, most = sorted((first.most / time.most, first.least / time.least))
    held = "holds" if least >= target else "misses" if most < target else "may miss"
    return f"{least:.0%} to {most:.0%} as efficient: {held} {target:.0%}"
