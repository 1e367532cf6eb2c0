"""Time of a step by what ranks compute and send."""

from __future__ import annotations

import pytest

from search_spaces.layout import Layout
from search_spaces.spec.cluster import ClusterSpec
from search_spaces.spec.layout import LayoutSpec
from trainables.parallel.footprint import Footprint, Traffic
from tuning.controller.resources.efficiency import grown, span, step_time

CLUSTER = ClusterSpec(bandwidth=10, local_bandwidth=100, latency=100, tflops=1)


def rank(**traffic: Traffic) -> Footprint:
    return Footprint(0, 0, 0, 0, 0, 10**12, traffic)


def test_data_parallel_transfers_may_go_on_beside_the_computation() -> None:
    sends = rank(dp_shard=Traffic(5 * 10**9, 1000))
    time = step_time([rank(), sends], Layout(dp_shard=16), CLUSTER, per_node=8)
    assert (time.least, time.most) == pytest.approx((1.0, 1.6))


def test_transfers_within_a_machine_are_faster() -> None:
    sends = rank(tp=Traffic(5 * 10**9, 1000), all=Traffic(10**9, 0))
    time = step_time([sends], Layout(dp_shard=2, tp=8), CLUSTER, per_node=8)
    assert time.least == time.most == pytest.approx(1.15)
    assert span(Layout(dp_shard=2, tp=8), "tp") == 8


def test_ranks_of_a_pipeline_wait() -> None:
    time = step_time([rank()], Layout(pp=4, microbatches=12), CLUSTER, per_node=8)
    assert time.most == pytest.approx(1.25)


def test_data_parallel_axis_grows() -> None:
    spec = LayoutSpec.model_validate({"dp_shard": -1, "tp": 2})
    layout = spec.resolve(8)
    assert grown(spec, layout, 16) == Layout(dp_shard=8, tp=2)
    assert grown(spec, layout, 1) is None
    fixed = LayoutSpec.model_validate({"pp": 4})
    assert grown(fixed, fixed.resolve(4), 8) == Layout(pp=4, dp_replicate=2)
