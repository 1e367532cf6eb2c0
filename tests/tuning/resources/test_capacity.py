"""Concurrent trials while machines join and leave the cluster."""

from search_spaces.spec.resources import ResourcesSpec
from tuning.controller.resources.capacity import IDLE_S, Capacity
from tuning.controller.resources.placement import Node, compute_placement


class Cluster:
    def __init__(self, resources, *machines):
        self.nodes = [m if isinstance(m, Node) else Node(m, 0) for m in machines]
        self.seconds, self.looks = 0.0, 0
        placement = compute_placement(resources, self.nodes)
        self.available_nodes = self.nodes
        self.capacity = Capacity(
            placement, self.look, lambda: self.available_nodes, lambda: self.seconds
        )

    def look(self):
        self.looks += 1
        return self.nodes

    def later(self, *cpus):
        self.nodes, self.seconds = [Node(c, 0) for c in cpus], self.seconds + 10
        return self.capacity.max_concurrent_trials()


def test_capacity_follows_the_machines():
    cluster = Cluster(ResourcesSpec(workers=2), 4, 4)
    assert cluster.capacity.max_concurrent_trials() == 4
    assert cluster.later(4) == 2
    assert cluster.later(4, 4, 8) == 8
    assert cluster.later() == 1, "a trial is tried even if none fits"


def test_capacity_never_exceeds_the_requested_concurrency():
    cluster = Cluster(ResourcesSpec(workers=2, concurrency=3), 8)
    assert cluster.capacity.max_concurrent_trials() == 3
    assert cluster.later(4) == 2
    assert cluster.later(80) == 3


def test_a_machine_of_the_autoscaler_ends_the_cap():
    cluster = Cluster(ResourcesSpec(workers=2), 4)
    new = Node(4, 0, started=False)
    cluster.nodes, cluster.seconds = [Node(4, 0), new], 10
    assert cluster.capacity.max_concurrent_trials() == 4
    cluster.capacity.cap_workers(4)
    cluster.seconds += 10
    assert cluster.capacity.max_concurrent_trials() == 2, "it does not start"
    cluster.nodes, cluster.seconds = [Node(4, 0), Node(4, 0)], cluster.seconds + 10
    assert cluster.capacity.max_concurrent_trials() == 4


def test_capacity_lists_machines_only_every_few_seconds():
    cluster = Cluster(ResourcesSpec(), 2)
    for _ in range(1000):
        cluster.capacity.max_concurrent_trials()
    assert cluster.looks == 0
    cluster.later(2)
    assert cluster.looks == 1


def test_cap_workers_holds_until_the_cluster_changes():
    cluster = Cluster(ResourcesSpec(), 4)
    cluster.capacity.cap_workers(2)
    assert cluster.capacity.max_concurrent_trials() == 2
    assert cluster.later(4) == 2
    assert cluster.later(4, 1) == 5


def test_capacity_is_idle_some_time_after_the_last_trial():
    cluster = Cluster(ResourcesSpec(), 4)
    cluster.seconds = IDLE_S
    assert not cluster.capacity.is_idle, "no trial has started yet"
    cluster.capacity.mark_activity()
    cluster.seconds += IDLE_S - 1
    assert not cluster.capacity.is_idle
    cluster.seconds += 1
    assert cluster.capacity.is_idle


ELASTIC = ResourcesSpec(workers={"min": 1, "max": 2, "grow_after": "30s"})


def test_next_trial_gets_a_fair_share_of_free_slots():
    cluster = Cluster(ELASTIC, 3)
    assert cluster.capacity.next_trial_workers([]) == 2
    assert cluster.capacity.next_trial_workers([2]) == 1
    assert cluster.capacity.next_trial_workers([2, 1]) is None
    assert cluster.capacity.next_trial_workers([1]) == 2
    fixed = Cluster(ResourcesSpec(workers=2), 5)
    assert fixed.capacity.next_trial_workers([2]) == 2
    assert fixed.capacity.next_trial_workers([2, 2]) is None


def test_fewest_workers_are_tried_on_a_full_cluster():
    cluster = Cluster(ELASTIC, 2)
    cluster.later()
    assert cluster.capacity.next_trial_workers([]) == 1
    assert cluster.capacity.next_trial_workers([1]) is None


def test_shrunken_cluster_is_overcommitted_while_a_trial_fits():
    cluster = Cluster(ELASTIC, 1, 1)
    assert not cluster.capacity.is_overcommitted([2])
    cluster.later(1)
    assert cluster.capacity.is_overcommitted([2])
    assert not cluster.capacity.is_overcommitted([1])
    cluster.later()
    assert not cluster.capacity.is_overcommitted([2]), "machines may join again"


def none():
    """No worker waits."""
    return 0


def test_trial_grows_into_slots_that_stay_free():
    cluster = Cluster(ELASTIC, 1)
    later, capacity = cluster.later, cluster.capacity
    capacity.track_free_slots([1])
    assert not capacity.should_grow(1, none)
    later(1, 1)
    capacity.track_free_slots([1])
    assert not capacity.should_grow(1, none), "the machine has just joined"
    cluster.seconds += 29
    assert not capacity.should_grow(1, none)
    cluster.seconds += 1
    assert not capacity.should_grow(2, none), "the trial has the most workers"
    assert capacity.should_grow(1, none)
    assert not capacity.should_grow(1, none), "one at a time"
    capacity.track_free_slots([])  # the trial restarts with more workers
    capacity.track_free_slots([2])
    cluster.seconds += 300
    assert not capacity.should_grow(1, none), "the slots are taken"


def test_trial_does_not_grow_after_another_took_the_slots():
    cluster = Cluster(ELASTIC, 2)
    cluster.capacity.track_free_slots([1])
    cluster.seconds += 20
    cluster.capacity.track_free_slots([1, 1])
    cluster.capacity.track_free_slots([1])
    cluster.seconds += 20
    assert not cluster.capacity.should_grow(1, none)


def test_trial_does_not_grow_into_slots_of_other_users():
    cluster = Cluster(ELASTIC, 1, 1)
    cluster.available_nodes = [Node(0.5, 0), Node(0.5, 0)]
    cluster.capacity.track_free_slots([1])
    cluster.seconds += 30
    assert not cluster.capacity.should_grow(1, none)
    cluster.capacity.track_free_slots([1])
    cluster.seconds += 29
    assert not cluster.capacity.should_grow(1, lambda: 1), "the delay starts again"
    cluster.seconds += 1
    assert cluster.capacity.should_grow(1, lambda: 1), "workers that wait can be released"


def test_trial_of_fixed_size_never_grows():
    cluster = Cluster(ResourcesSpec(workers=1), 4)
    cluster.capacity.track_free_slots([1])
    cluster.seconds += 1e9
    assert not cluster.capacity.should_grow(1, none)
