"""How many trials fit a cluster at once: arithmetic, so that nested resources never deadlock."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from search_spaces.errors import UserError
from search_spaces.schema import ResourcesSpec


@dataclass(frozen=True)
class Node:
    """What one machine of the cluster has."""

    cpus: float
    gpus: float


@dataclass(frozen=True)
class Placement:
    """How a sweep's trials are placed.

    Attributes:
        gpus_per_worker: resolved from `auto`.
        concurrency: trials at once.
        fits: how many trials the cluster could hold at once.
    """

    workers: int
    cpus_per_worker: float
    gpus_per_worker: float
    concurrency: int
    fits: int

    @property
    def cpus(self) -> float:
        """CPU cores that one trial holds."""
        return self.workers * self.cpus_per_worker

    @property
    def gpus(self) -> float:
        """GPUs that one trial holds."""
        return self.workers * self.gpus_per_worker

    @property
    def sharing(self) -> str | None:
        """How workers share GPUs, in words; None where they do not."""
        part = self.gpus_per_worker
        if not 0 < part < 1:
            return None
        return f"{math.floor(1 / part + 1e-9)} workers on one, {part:.0%} of its memory for each"

    @property
    def need(self) -> str:
        """What one trial holds, in words."""
        return (
            _amount(self.cpus, self.gpus)
            + f" ({self.workers} x {_amount(self.cpus_per_worker, self.gpus_per_worker)})"
        )


def place(resources: ResourcesSpec, nodes: Sequence[Node]) -> Placement:
    """Compute a placement from what the cluster has.

    `gpus_per_worker: auto` is one GPU a worker where the cluster has enough, else none. Workers of
    one trial may sit on several machines; a worker never does.

    Raises:
        UserError: one trial does not fit; the line has the arithmetic.
    """
    gpus = resources.gpus_per_worker
    if gpus == "auto":
        gpus = float(sum(math.floor(n.gpus) for n in nodes) >= resources.workers)
    slots = _all_slots(resources, gpus, nodes)
    fits = slots // resources.workers
    wanted = resources.concurrency
    placement = Placement(
        resources.workers,
        resources.cpus_per_worker,
        gpus,
        concurrency=fits if wanted == "auto" else min(wanted, fits),
        fits=fits,
    )
    if not fits:
        raise UserError(_does_not_fit(placement, nodes, slots))
    return placement


def room(resources: ResourcesSpec, gpus_per_worker: float, nodes: Sequence[Node]) -> int:
    """How many trials these machines could hold at once."""
    return _all_slots(resources, gpus_per_worker, nodes) // resources.workers


def describe_nodes(nodes: Sequence[Node]) -> str:
    """What the cluster has, in words."""
    machines = f"{len(nodes)} machine{'s' * (len(nodes) != 1)}"
    return f"{_amount(sum(n.cpus for n in nodes), sum(n.gpus for n in nodes))} on {machines}"


def _does_not_fit(need: Placement, nodes: Sequence[Node], slots: int) -> str:
    by_cpus = sum(_slots(n, need.cpus_per_worker, 0) for n in nodes)
    short = "cpus" if by_cpus < need.workers else "gpus"
    return (
        f"resources: a trial needs {need.need}, but the cluster has {describe_nodes(nodes)}: room "
        f"for {slots} of {need.workers} workers; lower resources.workers or "
        f"resources.{short}_per_worker, or join a larger cluster with --address"
    )


def _all_slots(resources: ResourcesSpec, gpus: float, nodes: Sequence[Node]) -> int:
    return sum(_slots(n, resources.cpus_per_worker, gpus) for n in nodes)


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
