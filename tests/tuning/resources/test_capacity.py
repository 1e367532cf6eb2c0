"""Trials at once while machines come and go."""

from search_spaces.spec.resources import ResourcesSpec
from tuning.controller.resources.capacity import IDLE_S, Capacity
from tuning.controller.resources.placement import Node, compute_placement


class Cluster:
    def __init__(self, resources, *cpus):
        self.nodes, self.seconds, self.looks = [Node(c, 0) for c in cpus], 0.0, 0
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
        return self.capacity.trials()


def test_trials_at_once_follow_the_machines():
    cluster = Cluster(ResourcesSpec(workers=2), 4, 4)
    assert cluster.capacity.trials() == 4
    assert cluster.later(4) == 2
    assert cluster.later(4, 4, 8) == 8
    assert cluster.later() == 1, "that nothing fits is found out by trying"


def test_a_concurrency_that_was_asked_for_is_the_most():
    cluster = Cluster(ResourcesSpec(workers=2, concurrency=3), 8)
    assert cluster.capacity.trials() == 3
    assert cluster.later(4) == 2
    assert cluster.later(80) == 3


def test_the_cluster_is_not_asked_at_every_report():
    cluster = Cluster(ResourcesSpec(), 2)
    for _ in range(1000):
        cluster.capacity.trials()
    assert cluster.looks == 0
    cluster.later(2)
    assert cluster.looks == 1


def test_what_others_hold_is_left_to_them_until_the_cluster_changes():
    cluster = Cluster(ResourcesSpec(), 4)
    cluster.capacity.cap_workers(2)
    assert cluster.capacity.trials() == 2
    assert cluster.later(4) == 2
    assert cluster.later(4, 1) == 5


def test_idle_is_a_while_without_a_trial():
    cluster = Cluster(ResourcesSpec(), 4)
    cluster.seconds = IDLE_S
    assert not cluster.capacity.is_idle, "before the first trial everything waits for it"
    cluster.capacity.mark_activity()
    cluster.seconds += IDLE_S - 1
    assert not cluster.capacity.is_idle
    cluster.seconds += 1
    assert cluster.capacity.is_idle


ELASTIC = ResourcesSpec(workers={"min": 1, "max": 2, "grow_after": "30s"})


def test_the_next_trial_gets_its_share_of_what_is_free():
    cluster = Cluster(ELASTIC, 3)
    assert cluster.capacity.next_trial_workers([]) == 2
    assert cluster.capacity.next_trial_workers([2]) == 1
    assert cluster.capacity.next_trial_workers([2, 1]) is None
    assert cluster.capacity.next_trial_workers([1]) == 2
    fixed = Cluster(ResourcesSpec(workers=2), 5)
    assert fixed.capacity.next_trial_workers([2]) == 2
    assert fixed.capacity.next_trial_workers([2, 2]) is None


def test_the_fewest_workers_are_tried_where_there_is_no_room():
    cluster = Cluster(ELASTIC, 2)
    cluster.later()
    assert cluster.capacity.next_trial_workers([]) == 1
    assert cluster.capacity.next_trial_workers([1]) is None


def test_a_cluster_that_shrank_is_overcommitted_while_it_holds_anything():
    cluster = Cluster(ELASTIC, 1, 1)
    assert not cluster.capacity.is_overcommitted([2])
    cluster.later(1)
    assert cluster.capacity.is_overcommitted([2])
    assert not cluster.capacity.is_overcommitted([1])
    cluster.later()
    assert not cluster.capacity.is_overcommitted([2]), "whether there will be room, nobody knows"


def none():
    """No worker waits."""
    return 0


def test_a_trial_grows_into_room_that_nobody_took_for_a_while():
    cluster = Cluster(ELASTIC, 1)
    later, capacity = cluster.later, cluster.capacity
    capacity.track_free_slots([1])
    assert not capacity.should_grow(1, none)
    later(1, 1)
    capacity.track_free_slots([1])
    assert not capacity.should_grow(1, none), "it has just come"
    cluster.seconds += 29
    assert not capacity.should_grow(1, none)
    cluster.seconds += 1
    assert not capacity.should_grow(2, none), "it has all it may have"
    assert capacity.should_grow(1, none)
    assert not capacity.should_grow(1, none), "one at a time"
    capacity.track_free_slots([])  # it has left, to come back larger
    capacity.track_free_slots([2])
    cluster.seconds += 300
    assert not capacity.should_grow(1, none), "the room is taken"


def test_room_that_another_trial_took_is_none():
    cluster = Cluster(ELASTIC, 2)
    cluster.capacity.track_free_slots([1])
    cluster.seconds += 20
    cluster.capacity.track_free_slots([1, 1])
    cluster.capacity.track_free_slots([1])
    cluster.seconds += 20
    assert not cluster.capacity.should_grow(1, none)


def test_what_others_hold_in_the_cluster_is_no_room_to_grow_into():
    cluster = Cluster(ELASTIC, 1, 1)
    cluster.available_nodes = [Node(0.5, 0), Node(0.5, 0)]
    cluster.capacity.track_free_slots([1])
    cluster.seconds += 30
    assert not cluster.capacity.should_grow(1, none)
    cluster.capacity.track_free_slots([1])
    cluster.seconds += 29
    assert not cluster.capacity.should_grow(1, lambda: 1), "it is looked at again after a while"
    cluster.seconds += 1
    assert cluster.capacity.should_grow(1, lambda: 1), "our own processes that wait are given up"


def test_who_may_not_change_never_grows():
    cluster = Cluster(ResourcesSpec(workers=1), 4)
    cluster.capacity.track_free_slots([1])
    cluster.seconds += 1e9
    assert not cluster.capacity.should_grow(1, none)
