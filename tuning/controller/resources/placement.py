"""How many trials fit a cluster at once: arithmetic, so that nested resources never deadlock."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from results.records.machines import Machine
from search_spaces.errors import UserError
from search_spaces.spec.sweep import ResourcesSpec


@dataclass(frozen=True)
class Node:
    """What one machine of the cluster has, or has left; the id that Ray gave it; its address."""

    cpus: float
    gpus: float
    id: str = ""
    address: str = ""


@dataclass(frozen=True)
class Allocation:
    """What an attempt gets of the cluster.

    Attributes:
        workers: all of them.
        cpus, gpus: what they hold together.
        kept_off: machines of the cluster that it should not run on.
        in_place: there is no other machine for it: it runs there nevertheless.
    """

    workers: int
    cpus: float
    gpus: float
    kept_off: tuple[Machine, ...] = ()
    in_place: bool = False

    @property
    def avoid(self) -> tuple[str, ...]:
        """Ids of the machines that its workers must not be placed on."""
        return () if self.in_place else tuple(m.id for m in self.kept_off)


FindAllocation = Callable[[Collection[Machine]], Allocation | None]
"""What a trial would get now that failed on some machines; None while it has to wait."""


@dataclass(frozen=True)
class Placement:
    """How a sweep's trials are placed.

    Attributes:
        resources: as the sweep asks for them.
        gpus_per_worker: resolved from `auto`.
        places: workers that the cluster could hold at once.
        sizes: workers of each of the trials at once, the most first; see `workers_per_trial`.
    """

    resources: ResourcesSpec
    gpus_per_worker: float
    worker_slots: int
    workers_per_trial: tuple[int, ...]

    @property
    def concurrency(self) -> int:
        """Trials at once."""
        return len(self.workers_per_trial)

    @property
    def max_trials(self) -> int:
        """How many trials the cluster could hold at once."""
        return self.worker_slots // self.resources.min_workers

    def allocation(self, workers: int) -> Allocation:
        """What so many workers hold."""
        each = self.resources.cpus_per_worker
        return Allocation(workers, workers * each, workers * self.gpus_per_worker)

    @property
    def elastic_summary(self) -> str | None:
        """How many workers the trials begin with, in words; None where it is always the same."""
        if not self.resources.elastic:
            return None
        least, most = self.resources.min_workers, self.resources.max_workers
        sizes = ", ".join(map(str, self.workers_per_trial))
        return f"{sizes} to begin with; {least} to {most} as there is room"

    @property
    def gpu_sharing_summary(self) -> str | None:
        """How workers share GPUs, in words; None where they do not."""
        part = self.gpus_per_worker
        if not 0 < part < 1:
            return None
        return f"{math.floor(1 / part + 1e-9)} workers on one, {part:.0%} of its memory for each"

    @property
    def request_summary(self) -> str:
        """What one trial holds, in words."""
        asked, each = self.resources, self.allocation(1)
        most, one = self.allocation(asked.max_workers), _amount(each.cpus, each.gpus)
        if not asked.elastic:
            return f"{_amount(most.cpus, most.gpus)} ({most.workers} x {one})"
        return f"{asked.min_workers} to {most.workers} x {one}"


def compute_placement(resources: ResourcesSpec, nodes: Sequence[Node]) -> Placement:
    """Compute a placement from what the cluster has.

    `gpus_per_worker: auto` is one GPU a worker where the cluster has enough for the fewest that a
    trial may have, else none. Workers of one trial may sit on several machines; one worker does
    not.

    Raises:
        UserError: one trial does not fit; the line has the arithmetic.
    """
    gpus = resources.gpus_per_worker
    if gpus == "auto":
        gpus = float(sum(math.floor(n.gpus) for n in nodes) >= resources.min_workers)
    there = worker_slots(resources, gpus, nodes)
    placement = Placement(resources, gpus, there, workers_per_trial(resources, there))
    if not placement.workers_per_trial:
        raise UserError(_does_not_fit(placement, nodes))
    return placement


def default_allocation(resources: ResourcesSpec) -> FindAllocation:
    """What an attempt gets where no cluster is asked: the most workers, and no GPU."""
    most = resources.max_workers
    allocation = Allocation(most, most * resources.cpus_per_worker, 0.0)
    return lambda blamed: allocation


def worker_slots(resources: ResourcesSpec, gpus_per_worker: float, nodes: Sequence[Node]) -> int:
    """How many workers these machines could hold at once."""
    return sum(_slots(n, resources.cpus_per_worker, gpus_per_worker) for n in nodes)


def max_concurrent_trials(resources: ResourcesSpec, there: int) -> int:
    """How many trials share so many workers' places: as few as use them all, or what is asked."""
    fit, wanted = there // resources.min_workers, resources.concurrency
    return min(fit, math.ceil(there / resources.max_workers) if wanted == "auto" else wanted)


def workers_per_trial(resources: ResourcesSpec, there: int) -> tuple[int, ...]:
    """How many workers each trial at once gets of so many places, the most first."""
    left, found = there, list[int]()
    for others in range(max_concurrent_trials(resources, there), 0, -1):
        found.append(fair_share(resources, left, others))
        left -= found[-1]
    return tuple(found)


def fair_share(resources: ResourcesSpec, free: int, trials: int) -> int:
    """How many workers the next trial gets of the free places, which so many are to share."""
    return min(resources.max_workers, math.ceil(free / trials))


def describe_nodes(nodes: Sequence[Node]) -> str:
    """What the cluster has, in words."""
    machines = f"{len(nodes)} machine{'s' * (len(nodes) != 1)}"
    return f"{_amount(sum(n.cpus for n in nodes), sum(n.gpus for n in nodes))} on {machines}"


def _does_not_fit(needed: Placement, nodes: Sequence[Node]) -> str:
    fewest = needed.resources.min_workers
    by_cpus = worker_slots(needed.resources, 0, nodes)
    short = "cpus" if by_cpus < fewest else "gpus"
    return (
        f"resources: a trial needs {needed.request_summary}, but the cluster has "
        f"{describe_nodes(nodes)}: room for {needed.worker_slots} of {fewest} workers; "
        "lower resources.workers or "
        f"resources.{short}_per_worker, or join a larger cluster with --address"
    )


def _slots(node: Node, cpus: float, gpus: float) -> int:
    fit = [math.floor(node.cpus / cpus + 1e-9)]
    if gpus >= 1:
        fit.append(math.floor(node.gpus / gpus + 1e-9))
    elif gpus > 0:  # a worker's share lies on one device
        fit.append(math.floor(node.gpus) * math.floor(1 / gpus + 1e-9))
    return min(fit)


def _amount(cpus: float, gpus: float) -> str:
    text = f"{cpus:g} CPU{'s' * (cpus != 1)}"
    return text + f" + {gpus:g} GPU{'s' * (gpus != 1)}" * bool(gpus)
