"""Trials at once while machines come and go."""

from search_spaces.sections.resources import ResourcesSpec
from tuning.execution.capacity import IDLE_S, Capacity
from tuning.execution.placement import Node, place


class Cluster:
    def __init__(self, resources, *cpus):
        self.nodes, self.seconds, self.looks = [Node(c, 0) for c in cpus], 0.0, 0
        placement = place(resources, self.nodes)
        self.capacity = Capacity(resources, placement, self.look, lambda: self.seconds)

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
    cluster.capacity.no_room_for_more_than(2)
    assert cluster.capacity.trials() == 2
    assert cluster.later(4) == 2
    assert cluster.later(4, 1) == 5


def test_idle_is_a_while_without_a_trial():
    cluster = Cluster(ResourcesSpec(), 4)
    cluster.seconds = IDLE_S
    assert not cluster.capacity.idle, "before the first trial everything waits for it"
    cluster.capacity.used()
    cluster.seconds += IDLE_S - 1
    assert not cluster.capacity.idle
    cluster.seconds += 1
    assert cluster.capacity.idle
