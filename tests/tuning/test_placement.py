"""How many trials fit, and the arithmetic in the refusal."""

import pytest

from search_spaces.errors import UserError
from search_spaces.schema import ResourcesSpec
from tuning.execution.placement import Node, place


def test_concurrency_is_what_fits():
    placement = place(ResourcesSpec(workers=2), [Node(8, 0)])
    assert (placement.concurrency, placement.gpus_per_worker) == (4, 0)


def test_auto_takes_a_gpu_a_worker_where_there_are_enough():
    assert place(ResourcesSpec(workers=2), [Node(8, 2)]).gpus_per_worker == 1
    assert place(ResourcesSpec(workers=2), [Node(8, 1)]).gpus_per_worker == 0
    assert place(ResourcesSpec(workers=2), [Node(4, 1), Node(4, 1)]).concurrency == 1


def test_a_worker_never_spans_machines():
    four = ResourcesSpec(workers=1, cpus_per_worker=4)
    assert place(four, [Node(6, 0), Node(6, 0)]).fits == 2
    with pytest.raises(UserError):
        place(four, [Node(3, 0), Node(3, 0)])


def test_a_share_of_a_gpu_lies_on_one_device():
    third = ResourcesSpec(workers=1, gpus_per_worker=0.4)
    assert place(third, [Node(64, 2)]).fits == 4


def test_concurrency_asked_for_is_capped():
    assert place(ResourcesSpec(workers=1, concurrency=3), [Node(8, 0)]).concurrency == 3
    assert place(ResourcesSpec(workers=1, concurrency=30), [Node(8, 0)]).concurrency == 8


def test_the_refusal_has_the_arithmetic():
    with pytest.raises(UserError) as e:
        place(ResourcesSpec(workers=4, gpus_per_worker=1), [Node(16, 2)])
    assert str(e.value) == (
        "resources: a trial needs 4 CPUs + 4 GPUs (4 x 1 CPU + 1 GPU), but the cluster has 16 CPUs"
        " + 2 GPUs on 1 machine: room for 2 of 4 workers; lower resources.workers or"
        " resources.gpus_per_worker, or join a larger cluster with --address"
    )


def test_workers_times_fraction():
    quarter = ResourcesSpec(workers=2, gpus_per_worker=0.25)
    placement = place(quarter, [Node(64, 1)])
    assert (placement.fits, placement.need) == (2, "2 CPUs + 0.5 GPUs (2 x 1 CPU + 0.25 GPUs)")
    assert placement.sharing == "4 workers on one, 25% of its memory for each"
    assert place(ResourcesSpec(gpus_per_worker=1), [Node(64, 1)]).sharing is None
    assert place(quarter, [Node(64, 2), Node(64, 1)]).fits == 6
    assert place(quarter, [Node(3, 8)]).fits == 1, "the CPUs are what there is too little of"
    assert place(ResourcesSpec(gpus_per_worker=0.1), [Node(64, 1)]).fits == 10


def test_a_fraction_that_cannot_be_placed_is_refused():
    with pytest.raises(UserError) as e:
        place(ResourcesSpec(workers=3, gpus_per_worker=0.6), [Node(8, 2)])
    (line,) = e.value.problems
    assert "3 CPUs + 1.8 GPUs (3 x 1 CPU + 0.6 GPUs)" in line
    assert "room for 2 of 3 workers" in line
    with pytest.raises(ValueError, match=r"a whole number, or below 1 to share a GPU, got 1\.5"):
        ResourcesSpec(gpus_per_worker=1.5)
