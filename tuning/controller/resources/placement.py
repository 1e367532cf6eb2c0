"""Computes how many trials fit a cluster at once, so that nested resources never deadlock."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from results.records.machines import Machine
from search_spaces.errors import UserError, quantity
from search_spaces.layout import Layout
from search_spaces.spec.layout import LayoutSpec
from search_spaces.spec.resources import ResourcesSpec
from tuning.cluster.nodes import Node as Node


@dataclass(frozen=True)
class Allocation:
    """The resources of one attempt.

    Attributes:
        workers: number of workers.
        cpus, gpus: that all workers hold together.
        kept_off: machines that the attempt should avoid.
        in_place: it runs on those machines nevertheless, because no others fit.
        layout: how they share the model, if that was chosen for the attempt.
    """

    workers: int
    cpus: float
    gpus: float
    kept_off: tuple[Machine, ...] = ()
    in_place: bool = False
    layout: LayoutSpec | None = None

    def with_layout(self, layout: Layout) -> Allocation:
        """The resources of the workers of a layout, of which there are enough."""
        part = layout.num_ranks / self.workers
        return replace(
            self,
            workers=layout.num_ranks,
            cpus=self.cpus * part,
            gpus=self.gpus * part,
            layout=LayoutSpec.of(layout),
        )

    @property
    def avoid(self) -> tuple[str, ...]:
        """Ids of the machines on which its workers must not be placed."""
        return () if self.in_place else tuple(m.id for m in self.kept_off)


FindAllocation = Callable[[Collection[Machine], int], Allocation | None]
"""The allocation of a trial that failed on the given machines and needs so many workers or more;
None while it has to wait."""


@dataclass(frozen=True)
class Placement:
    """Distribution of a cluster's resources to the trials of a sweep.

    Attributes:
        resources: as the sweep file requests them.
        gpus_per_worker: resolved from `auto`.
        worker_slots: number of workers that fit the cluster at once.
        workers_per_trial: workers of each concurrent trial, the largest first.
    """

    resources: ResourcesSpec
    gpus_per_worker: float
    worker_slots: int
    workers_per_trial: tuple[int, ...]

    @property
    def concurrency(self) -> int:
        """Number of concurrent trials."""
        return len(self.workers_per_trial)

    @property
    def max_trials(self) -> int:
        """The number of trials that would fit the cluster at once, with the fewest workers each."""
        return self.worker_slots // self.resources.min_workers

    def allocation(self, workers: int) -> Allocation:
        """The resources that this number of workers holds."""
        each = self.resources.cpus_per_worker
        return Allocation(workers, workers * each, workers * self.gpus_per_worker)

    def with_share(self, share: float, nodes: Sequence[Node]) -> Placement:
        """The same with another part of a GPU for each worker."""
        slots = worker_slots(self.resources, share, nodes)
        return Placement(self.resources, share, slots, workers_per_trial(self.resources, slots))

    @property
    def elastic_summary(self) -> str | None:
        """The number of workers of elastic trials, in words; None for a fixed number."""
        if not self.resources.elastic:
            return None
        least, most = self.resources.min_workers, self.resources.max_workers
        sizes = ", ".join(map(str, self.workers_per_trial))
        return f"{sizes} at the start; {least} to {most} as resources allow"

    @property
    def layout_summary(self) -> str | None:
        """How the workers of a trial share its model, in words; None if each has a copy."""
        layouts = [
            self.resources.written_layout.resolve(workers)
            for workers in sorted({self.resources.min_workers, self.resources.max_workers})
        ]
        if not layouts[-1].shares_model:
            return None
        parts = " to ".join(f"{layout.dp_shard * layout.model_parallel}" for layout in layouts)
        return f"{layouts[-1]}: weights, gradients and optimizer state in {parts} parts"

    @property
    def gpu_sharing_summary(self) -> str | None:
        """The shares of GPUs, in words; None if workers do not share them."""
        part = self.gpus_per_worker
        if not 0 < part < 1:
            return None
        return f"{workers_per_gpu(part)} workers on one, {part:.0%} of its memory for each"

    @property
    def request_summary(self) -> str:
        """The resources of one trial, in words."""
        resources, one = self.resources, self.allocation(1)
        if not resources.elastic:
            return self.request_of(resources.max_workers)
        least, most = resources.min_workers, resources.max_workers
        return f"{least} to {most} x {_amount(one.cpus, one.gpus)}"

    def request_of(self, workers: int) -> str:
        """The resources of a trial with so many workers, in words."""
        one, held = self.allocation(1), self.allocation(workers)
        return f"{_amount(held.cpus, held.gpus)} ({workers} x {_amount(one.cpus, one.gpus)})"


def workers_per_gpu(share: float) -> int:
    """The number of workers that have room on a GPU with this part of it each, at most 1."""
    return math.floor(1 / share + 1e-9)


def compute_placement(
    resources: ResourcesSpec, nodes: Sequence[Node], share: float = 1.0
) -> Placement:
    """Place the trials of a sweep on the machines of a cluster.

    `gpus_per_worker: auto` is one GPU per worker if the cluster has enough for the fewest workers
    of a trial, else none; for trials of one worker the `share` of a GPU instead. Workers of one
    trial may run on several machines; one worker does not span machines.

    Raises:
        UserError: not even one trial fits; the message shows the arithmetic.
    """
    gpus = resources.gpus_per_worker
    if gpus == "auto":
        gpus = float(sum(math.floor(n.gpus) for n in nodes) >= resources.min_workers)
        gpus *= share if resources.max_workers == 1 else 1
    slots = worker_slots(resources, gpus, nodes)
    placement = Placement(resources, gpus, slots, workers_per_trial(resources, slots))
    if not placement.workers_per_trial:
        raise UserError(_does_not_fit(placement, nodes))
    return placement


def unused_gpus(placement: Placement, nodes: Sequence[Node]) -> str | None:
    """In words, that `auto` found too few GPUs for a trial; None if that is not so."""
    resources, gpus = placement.resources, sum(math.floor(n.gpus) for n in nodes)
    if placement.gpus_per_worker or not gpus or resources.gpus_per_worker != "auto":
        return None
    share = 1 / math.ceil(resources.min_workers / gpus)
    return (
        f"unused, because a trial has {resources.min_workers} workers and the cluster "
        f"{quantity(gpus, 'GPU')}; set resources.gpus_per_worker: {share:.2g} to share them, "
        f"or resources.workers: {gpus}"
    )


def unused_nccl(placement: Placement) -> str | None:
    """That settings of NCCL have no effect here; None if they have one, or there are none."""
    if not placement.resources.nccl or placement.gpus_per_worker >= 1:
        return None
    return "resources.nccl has no effect here: the workers have no GPU each, and use gloo"


def no_cpu_for_tasks(placement: Placement, nodes: Sequence[Node]) -> str | None:
    """In words, that the trials leave no CPU for the tasks of Ray Data; None if they leave one."""
    cpus = sum(node.cpus for node in nodes)
    held = placement.allocation(sum(placement.workers_per_trial)).cpus
    if cpus - held >= 1:
        return None
    return (
        f"its tasks would wait for ever, because the trials hold {held:g} of {cpus:g} CPUs; "
        "lower resources.concurrency or resources.cpus_per_worker"
    )


def default_allocation(resources: ResourcesSpec) -> FindAllocation:
    """Allocations without a cluster: always the most workers, and no GPU."""
    most = resources.max_workers
    allocation = Allocation(most, most * resources.cpus_per_worker, 0.0)
    return lambda blamed, fewest: allocation


def worker_slots(resources: ResourcesSpec, gpus_per_worker: float, nodes: Sequence[Node]) -> int:
    """The number of workers that fit these machines at once."""
    return sum(_slots(n, resources.cpus_per_worker, gpus_per_worker) for n in nodes)


def max_concurrent_trials(resources: ResourcesSpec, slots: int) -> int:
    """The number of trials that share the slots: as few as use all slots, or as requested."""
    fit, wanted = slots // resources.min_workers, resources.concurrency
    return min(fit, math.ceil(slots / resources.max_workers) if wanted == "auto" else wanted)


def workers_per_trial(resources: ResourcesSpec, slots: int) -> tuple[int, ...]:
    """The number of workers of each concurrent trial, the largest first."""
    free, found = slots, list[int]()
    for trials in range(max_concurrent_trials(resources, slots), 0, -1):
        found.append(fair_share(resources, free, trials))
        free -= found[-1]
    return tuple(found)


def fair_share(resources: ResourcesSpec, free: int, trials: int) -> int:
    """The number of workers of the next of some trials that share the free slots."""
    return min(resources.max_workers, math.ceil(free / trials))


def describe_nodes(nodes: Sequence[Node]) -> str:
    """The resources of the cluster, in words."""
    machines = quantity(len(nodes), "machine")
    if later := sum(not node.started for node in nodes):
        machines += f", of which {later} start when needed"
    return f"{_amount(sum(n.cpus for n in nodes), sum(n.gpus for n in nodes))} on {machines}"


def _does_not_fit(placement: Placement, nodes: Sequence[Node]) -> str:
    fewest = placement.resources.min_workers
    by_cpus = worker_slots(placement.resources, 0, nodes)
    short = "cpus" if by_cpus < fewest else "gpus"
    return (
        f"resources: a trial needs {placement.request_summary}, but the cluster has "
        f"{describe_nodes(nodes)}: {placement.worker_slots} of {fewest} workers fit; "
        f"lower resources.workers or resources.{short}_per_worker, or join a larger cluster "
        "with --address"
    )


def _slots(node: Node, cpus: float, gpus: float) -> int:
    fit = [math.floor(node.cpus / cpus + 1e-9)]
    if gpus >= 1:
        fit.append(math.floor(node.gpus / gpus + 1e-9))
    elif gpus > 0:  # a worker's share lies on one device
        fit.append(math.floor(node.gpus) * workers_per_gpu(gpus))
    return min(fit)


def _amount(cpus: float, gpus: float) -> str:
    text = quantity(cpus, "CPU")
    return f"{text} + {quantity(gpus, 'GPU')}" if gpus else text
