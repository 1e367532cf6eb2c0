from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import yaml
from hypothesis import given as of_all
from hypothesis import strategies as st
from pydantic import ValidationError

from search_spaces.layout import AXES, Layout
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
    assert ResourcesSpec().layout == DDP != layout("fsdp")


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    """Every layout that a sweep file can have, with up to four ranks on an axis."""
    sizes = {name: draw(st.integers(1, 4), label=name) for name in AXES}
    cut, parts = sizes["dp_shard"] * sizes["cp"], sizes["dp_shard"] * sizes["cp"] * sizes["tp"]
    flags, found = st.booleans(), {**sizes, "ep": draw(st.sampled_from([1, parts]))}
    if sizes["pp"] > 1:
        schedules = ("gpipe", "1f1b", "interleaved", "zero_bubble")
        found["schedule"] = draw(st.none() | st.sampled_from(schedules))
        found["microbatches"] = draw(st.none() | st.integers(1, 9))
    if sizes["cp"] > 1:
        found["cp_method"] = draw(st.sampled_from(["gather", "ring"]))
    if sizes["tp"] > 1:
        found["sequence_parallel"] = draw(flags)
    if cut > 1:
        found |= {"reshard_after_forward": draw(flags), "cpu_offload": draw(flags)}
    return layout(found).resolve(sizes["pp"] * sizes["dp_replicate"] * parts)


@of_all(layouts())
def test_layout_as_written_is_the_same_layout(one: Layout) -> None:
    assert layout(yaml.safe_load(one.as_written())).resolve(one.num_ranks) == one
    assert LayoutSpec.of(one).resolve(one.num_ranks) == one


@of_all(layouts(), st.data())
def test_log_tells_layouts_apart(one: Layout, data: st.DataObject) -> None:
    changed = {name: data.draw(st.just(getattr(one, name)) | values) for name, values in CHOICES}
    other = replace(one, **changed)
    of_one, of_other = (replace(x, microbatches=x.num_microbatches).choices for x in (one, other))
    assert (str(one) == str(other)) == (of_one == of_other)


CHOICES: list[tuple[str, st.SearchStrategy[Any]]] = [
    ("schedule", st.sampled_from(["gpipe", "1f1b"])),
    ("microbatches", st.integers(1, 9)),
    ("cp_method", st.sampled_from(["gather", "ring"])),
    ("sequence_parallel", st.booleans()),
    ("reshard_after_forward", st.booleans()),
    ("cpu_offload", st.booleans()),
]


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
