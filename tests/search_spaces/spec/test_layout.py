from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from search_spaces.layout import Layout
from search_spaces.spec.layout import DDP, LayoutSpec
from search_spaces.spec.resources import ResourcesSpec


def layout(given: Any) -> LayoutSpec:
    return ResourcesSpec.model_validate({"layout": given}).layout


@pytest.mark.parametrize(
    ("given", "workers", "expected"),
    [
        ("ddp", 4, Layout(4, 1)),
        ("fsdp", 4, Layout(1, 4)),
        ({"dp_shard": 4}, 4, Layout(1, 4)),
        ({"dp_replicate": -1, "dp_shard": 4}, 8, Layout(2, 4)),
        (
            {"dp_shard": -1, "reshard_after_forward": False},
            2,
            Layout(dp_shard=2, reshard_after_forward=False),
        ),
        ({"dp_shard": -1, "tp": 2}, 8, Layout(dp_shard=4, tp=2)),
        ({"dp_replicate": 2, "cp": -1}, 8, Layout(dp_replicate=2, cp=4)),
        ({"dp_shard": -1, "tp": 2, "ep": 4}, 8, Layout(dp_shard=4, tp=2, ep=4)),
        (
            {"pp": 4, "dp_shard": 8, "tp": 2, "ep": 2},
            64,
            Layout(pp=4, dp_shard=8, tp=2, ep=2),
        ),
        (
            {"pp": 2, "dp_replicate": -1, "schedule": "gpipe", "microbatches": 8},
            4,
            Layout(dp_replicate=2, pp=2, schedule="gpipe", microbatches=8),
        ),
    ],
)
def test_axes_make_the_workers(given: Any, workers: int, expected: Layout) -> None:
    found = layout(given).resolve(workers)
    assert found == expected
    assert found.data_parallel * found.model_parallel == workers


@pytest.mark.parametrize(
    ("given", "workers", "nearest"),
    [
        ({"dp_shard": 4}, 8, "{dp_replicate: 2, dp_shard: 4}"),
        ({"dp_shard": 4}, 6, "{dp_replicate: 2, dp_shard: 3}"),
        ({"dp_replicate": 4, "dp_shard": -1}, 6, "{dp_replicate: 3, dp_shard: 2}"),
        ({}, 3, "{dp_replicate: 3}"),
        ({"pp": 2}, 4, "{pp: 2, dp_replicate: 2}"),
        ({"dp_shard": 8, "ep": 4}, 6, "{dp_shard: 6, ep: 3}"),
    ],
)
def test_mistake_names_the_nearest_layout(given: Any, workers: int, nearest: str) -> None:
    with pytest.raises(ValueError, match=rf"(is|divide) {workers}; nearest layout: ") as e:
        layout(given).resolve(workers)
    assert str(e.value).endswith(nearest)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ("fdsp", "no layout 'fdsp' (did you mean 'fsdp'?)"),
        ({"dp_shard": -1, "dp_replicate": -1}, "only one axis can be -1"),
        ({"dp_shard": 0}, "must be at least 1, or -1 for the rest, got 0"),
        ({"reshard_after_forward": False}, "has no effect without dp_shard or cp"),
        ({"dp_shard": 2, "cp_method": "ring"}, "cp_method has no effect without cp"),
        ({"cp": 2, "sequence_parallel": True}, "sequence_parallel has no effect without tp"),
        ({"cpu_offload": True}, "cpu_offload has no effect without dp_shard or cp"),
        ({"tensor": 2}, "Extra inputs"),
        ({"tp": 2, "schedule": "gpipe"}, "schedule has no effect without pp"),
        ({"microbatches": 2}, "microbatches has no effect without pp"),
        ({"pp": 2, "schedule": "zbv"}, "Input should be 'gpipe', '1f1b', 'interleaved'"),
    ],
)
def test_impossible_layouts_are_refused(given: Any, problem: str) -> None:
    with pytest.raises(ValidationError) as e:
        layout(given)
    assert problem in str(e.value)


@pytest.mark.parametrize(
    ("given", "nearest"),
    [
        ({"dp_shard": -1, "ep": 3}, "{dp_shard: 4, ep: 2}"),
        ({"dp_replicate": -1, "ep": 2}, "{dp_replicate: 4}"),
    ],
)
def test_ep_divides_the_ranks_that_share_a_copy(given: Any, nearest: str) -> None:
    with pytest.raises(ValueError, match="does not divide dp_shard x cp x tp") as e:
        layout(given).resolve(4)
    assert str(e.value).endswith(f"nearest layout: {nearest}")


def test_without_a_layout_each_rank_has_the_model() -> None:
    assert ResourcesSpec().layout == DDP
    assert DDP.is_default
    assert not layout("fsdp").is_default


def test_neighbours_have_as_many_ranks_and_the_nearest_comes_first() -> None:
    axes = ("dp_replicate", "dp_shard", "tp")
    found = list(Layout(dp_replicate=2, tp=4).neighbours(axes))
    assert {o.dp_replicate * o.dp_shard * o.tp for o in found} == {8}
    assert Layout(dp_replicate=2, tp=4) not in found
    assert found[0] in (
        Layout(4, tp=2),
        Layout(tp=8),
        Layout(2, 2, tp=2),
        Layout(1, 2, tp=4),
    )
