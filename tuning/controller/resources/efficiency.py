"""Time of a step on a cluster of equal machines, from what its ranks compute and send."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from search_spaces.layout import AXES, Layout
from search_spaces.spec.cluster import ClusterSpec
from search_spaces.spec.layout import REST, LayoutSpec
from trainables.parallel.footprint import Footprint

TARGETS = {2: 0.90, 4: 0.85, 8: 0.75}
"""Weak-scaling efficiency of so many machines that a platform is held against."""
_BESIDE = ("dp_replicate", "dp_shard")
"""Axes whose transfers can go on while a rank computes."""


@dataclass(frozen=True)
class StepTime:
    """Seconds of a step.

    Attributes:
        least: if transfers of the data-parallel axes go on beside the computation.
        most: if every transfer is waited for.
    """

    least: float
    most: float


def step_time(
    ranks: Sequence[Footprint], layout: Layout, cluster: ClusterSpec, per_node: int
) -> StepTime:
    """Time of a step, for which the slowest rank decides.

    Args:
        ranks: one of each stage.
        layout: of all ranks.
        cluster: with `bandwidth` and `tflops`.
        per_node: ranks of a machine; neighbours are on one.
    """
    times = [_rank_time(rank, layout, cluster, per_node) for rank in ranks]
    return StepTime(max(t.least for t in times), max(t.most for t in times))


def _rank_time(rank: Footprint, layout: Layout, cluster: ClusterSpec, per_node: int) -> StepTime:
    assert cluster.bandwidth is not None
    assert cluster.tflops is not None
    parts = layout.num_microbatches * layout.stages_per_rank
    waits = (layout.pp - 1) / parts if layout.pp > 1 else 0.0
    compute = rank.flops / (cluster.tflops * 1e12) * (1 + waits)
    beside = waited = 0.0
    for axis, sent in rank.traffic.items():
        local = span(layout, axis) <= per_node
        speed = (cluster.local_bandwidth if local else None) or cluster.bandwidth
        latency = 0.0 if local else cluster.latency * 1e-6
        seconds = sent.messages * latency + sent.bytes / (speed * 1e9)
        if axis in _BESIDE:
            beside += seconds
        else:
            waited += seconds
    return StepTime(max(compute, beside) + waited, compute + beside + waited)


def span(layout: Layout, axis: str) -> int:
    """Neighbouring ranks among which the groups of an axis are; `all` is every rank."""
    sizes = list(layout.sizes.values())
    return math.prod(sizes[AXES.index(axis) :]) if axis in AXES else layout.num_ranks


def grown(spec: LayoutSpec, layout: Layout, ranks: int) -> Layout | None:
    """The layout of more or fewer ranks: its data-parallel axis grows; None if it cannot."""
    axis = "dp_shard" if spec.dp_shard == REST else "dp_replicate"
    size, rest = divmod(getattr(layout, axis) * ranks, layout.num_ranks)
    return replace(layout, **{axis: size}) if size and not rest else None
