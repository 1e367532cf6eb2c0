"""How many trials fit a cluster, and the arithmetic in the error message."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from search_spaces.errors import UserError
from search_spaces.spec.resources import ResourcesSpec
from tuning.cluster.nodes import with_autoscaling
from tuning.controller.resources.placement import (
    Node,
    compute_placement,
    describe_nodes,
    no_cpu_for_tasks,
    unused_gpus,
    unused_nccl,
    workers_per_trial,
)


def place(nodes, **resources):
    return compute_placement(ResourcesSpec(**resources), nodes)


@pytest.mark.parametrize(
    ("nodes", "resources", "trials"),
    [
        ([Node(8, 0)], {"workers": 2}, 4),
        ([Node(6, 0), Node(6, 0)], {"cpus_per_worker": 4}, 2),  # none spans machines
        ([Node(64, 2)], {"gpus_per_worker": 0.4}, 4),  # a fraction lies on one device
        ([Node(8, 0)], {"concurrency": 3}, 3),
        ([Node(8, 0)], {"concurrency": 30}, 8),
        ([Node(4, 1), Node(4, 1)], {"workers": 2}, 1),
        ([Node(64, 2), Node(64, 1)], {"workers": 2, "gpus_per_worker": 0.25}, 6),
        ([Node(3, 8)], {"workers": 2, "gpus_per_worker": 0.25}, 1),  # CPUs are short
        ([Node(64, 1)], {"gpus_per_worker": 0.1}, 10),
    ],
)
def test_trials_that_fit_at_once(nodes, resources, trials):
    assert place(nodes, **resources).concurrency == trials


GROWS = '{"max_nodes": 3, "cpus": 4, "gpus": 1}'


def test_autoscaling_counts_machines_that_start_when_needed():
    head, worker = Node(0, 0, "head"), Node(4, 1, "there")
    nodes = with_autoscaling([head, worker], GROWS)
    assert [n.started for n in nodes] == [True, True, False, False]
    assert place(nodes, workers=1).concurrency == 3
    assert describe_nodes(nodes).endswith("on 4 machines, of which 2 start when needed")
    assert with_autoscaling([head, worker], None) == [head, worker]
    assert with_autoscaling([worker] * 5, GROWS) == [worker] * 5


def test_a_trial_that_fits_only_what_starts_later_is_not_refused():
    with pytest.raises(UserError):
        place([Node(4, 1)], workers=3, gpus_per_worker=1)
    assert place(with_autoscaling([Node(4, 1)], GROWS), workers=3, gpus_per_worker=1).concurrency


@pytest.mark.parametrize(
    "text",
    ["8", "{}", *(f'{{"max_nodes": {most}, "cpus": 1, "gpus": 0}}' for most in ('"x"', "1e999"))],
)
def test_autoscaling_of_another_form_is_a_line(text):
    with pytest.raises(UserError, match="TUNE_AUTOSCALING: must be like"):
        with_autoscaling([], text)


@pytest.mark.parametrize(
    ("gpus", "workers", "each"), [(2, 2, 1), (1, 2, 0), (1, {"min": 1, "max": 2}, 1)]
)
def test_auto_gives_each_worker_a_gpu_if_there_are_enough(gpus, workers, each):
    assert place([Node(8, gpus)], workers=workers).gpus_per_worker == each


def test_trials_that_leave_no_cpu_for_ray_data_are_named():
    nodes = [Node(4, 0)]
    assert "the trials hold 4 of 4 CPUs" in no_cpu_for_tasks(place(nodes, workers=2), nodes)
    assert no_cpu_for_tasks(place(nodes, workers=2, concurrency=1), nodes) is None
    assert no_cpu_for_tasks(place(nodes, workers=4, cpus_per_worker=0.5), [Node(5, 0)]) is None


def test_settings_of_nccl_without_gpus_are_named():
    nccl = {"NCCL_ALGO": "Ring"}
    assert "no effect" in unused_nccl(place([Node(8, 0)], workers=2, nccl=nccl))
    assert unused_nccl(place([Node(8, 2)], workers=2, nccl=nccl)) is None
    assert unused_nccl(place([Node(8, 0)], workers=2)) is None


@pytest.mark.parametrize(
    ("resources", "message"),
    [
        ({"workers": 1, "nccl": {"NCCL_ALGO": "Ring"}}, "no effect with one worker"),
        ({"workers": 2, "nccl": {"NCCL_ALGO": "Ring"}, "gpus_per_worker": 0}, "without GPUs use"),
        ({"workers": 2, "nccl": {"NCCL_ALGO": "Ring"}, "gpus_per_worker": 0.5}, "that share a GPU"),
        ({"workers": 2, "nccl": {"NCCL_ALGO": True}}, "must be a text or a whole number"),
        ({"workers": 2, "nccl": {"NCCL_TIMEOUT": "1m"}}, "must be whole seconds > 0, got '1m'"),
        ({"workers": 2, "nccl": {"NCCL_TIMEOUT": 9}, "process_group_timeout": 8}, "not both"),
    ],
)
def test_settings_of_nccl_that_can_have_no_effect_are_refused(resources, message):
    with pytest.raises(ValidationError, match=message):
        ResourcesSpec(**resources)


def test_nccl_timeout_is_that_of_the_process_group():
    assert ResourcesSpec(workers=2, nccl={"NCCL_TIMEOUT": 90}).process_group_timeout_s == 90
    assert ResourcesSpec(process_group_timeout="5m").process_group_timeout_s == 300
    assert ResourcesSpec().process_group_timeout_s == 1800
    assert ResourcesSpec(workers=2, nccl={"NCCL_IB_DISABLE": 1}).nccl == {"NCCL_IB_DISABLE": "1"}


@pytest.mark.parametrize(
    ("gpus", "workers", "share"), [(1, 2, "0.5"), (2, 3, "0.5"), (1, 3, "0.33")]
)
def test_gpus_that_auto_leaves_unused_are_named_with_the_settings_to_use_them(gpus, workers, share):
    nodes = [Node(8, gpus)]
    said = unused_gpus(place(nodes, workers=workers), nodes)
    assert said.startswith(f"unused, because a trial has {workers} workers and the cluster {gpus}")
    assert f"gpus_per_worker: {share} to" in said
    assert place(nodes, workers=workers, gpus_per_worker=float(share)).concurrency
    assert unused_gpus(place(nodes, workers=gpus), nodes) is None
    assert unused_gpus(place(nodes, workers=workers, gpus_per_worker=0), nodes) is None
    assert unused_gpus(place([Node(8, 0)], workers=workers), [Node(8, 0)]) is None


def test_error_shows_the_arithmetic():
    with pytest.raises(UserError) as e:
        place([Node(16, 2)], workers=4, gpus_per_worker=1)
    assert str(e.value) == (
        "resources: a trial needs 4 CPUs + 4 GPUs (4 x 1 CPU + 1 GPU), but the cluster has 16 CPUs"
        " + 2 GPUs on 1 machine: 2 of 4 workers fit; lower resources.workers or"
        " resources.gpus_per_worker, or join a larger cluster with --address"
    )


def test_placement_of_workers_that_share_gpus():
    quarter = ResourcesSpec(workers=2, gpus_per_worker=0.25)
    placement = compute_placement(quarter, [Node(64, 1)])
    assert placement.max_trials == 2
    assert placement.request_summary == "2 CPUs + 0.5 GPUs (2 x 1 CPU + 0.25 GPUs)"
    assert placement.gpu_sharing_summary == "4 workers on one, 25% of its memory for each"
    assert place([Node(64, 1)], gpus_per_worker=1).gpu_sharing_summary is None


def test_fraction_that_cannot_be_placed_is_refused():
    with pytest.raises(UserError) as e:
        place([Node(8, 2)], workers=3, gpus_per_worker=0.6)
    (line,) = e.value.problems
    assert "3 CPUs + 1.8 GPUs (3 x 1 CPU + 0.6 GPUs)" in line
    assert "2 of 3 workers fit" in line
    with pytest.raises(ValueError, match=r"a whole number, or below 1 to share a GPU, got 1\.5"):
        ResourcesSpec(gpus_per_worker=1.5)


def elastic(least, most, **more):
    return ResourcesSpec(workers={"min": least, "max": most}, **more)


@pytest.mark.parametrize(
    ("resources", "cpus", "expected"),
    [
        (elastic(1, 2), 1, (1,)),
        (elastic(1, 2), 3, (2, 1)),
        (elastic(2, 4), 5, (3, 2)),
        (elastic(1, 4), 4, (4,)),
        (elastic(1, 4, concurrency=3), 4, (2, 1, 1)),
        (elastic(2, 4, concurrency=3), 4, (2, 2)),
        (elastic(3, 4), 5, (4,)),
        (ResourcesSpec(workers=2), 5, (2, 2)),
    ],
)
def test_elastic_trials_share_the_slots(resources, cpus, expected):
    assert compute_placement(resources, [Node(cpus, 0)]).workers_per_trial == expected


@settings(max_examples=200, derandomize=True)
@given(
    st.integers(1, 4), st.integers(0, 4), st.integers(0, 40), st.integers(1, 9) | st.just("auto")
)
def test_every_share_is_allowed_and_no_slot_is_lost(least, more, slots, concurrency):
    resources = elastic(least, least + more, concurrency=concurrency)
    shares = workers_per_trial(resources, slots)
    assert all(least <= share <= least + more for share in shares)
    assert sum(shares) <= slots
    assert bool(shares) == (slots >= least)
    left = slots - sum(shares)
    if concurrency == "auto":
        assert left < least or all(share == least + more for share in shares)


def test_summaries_of_an_elastic_placement():
    placement = compute_placement(elastic(1, 2, cpus_per_worker=2), [Node(6, 0)])
    assert placement.request_summary == "1 to 2 x 2 CPUs"
    assert placement.elastic_summary == "2, 1 at the start; 1 to 2 as resources allow"
    assert place([Node(6, 0)], workers=2).elastic_summary is None
    with pytest.raises(UserError, match=r"needs 2 to 3 x 1 CPU, .* 1 of 2 workers fit"):
        compute_placement(elastic(2, 3), [Node(1, 0)])


def test_summary_of_a_layout():
    placement = place([Node(4, 0)], workers=4, layout={"dp_replicate": 2, "dp_shard": 2})
    assert placement.layout_summary == (
        "dp_replicate 2 x dp_shard 2: weights, gradients and optimizer state in 2 parts"
    )
    fsdp = compute_placement(elastic(2, 4, layout="fsdp"), [Node(4, 0)])
    assert fsdp.layout_summary is not None
    assert fsdp.layout_summary.endswith("in 2 to 4 parts")
    assert place([Node(4, 0)], workers=4).layout_summary is None
