"""Whether a stage fits beside those that run: workers into the cluster, trials into the budget."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property

from results.records.pipeline import PipelinePaths
from search_spaces.errors import UserError
from search_spaces.pipeline.loading import LoadedPipeline
from tuning.controller.resources.placement import Node, compute_placement
from tuning.pipelines.running.spending import left_of_budget

Amount = tuple[float, float]
"""CPUs and GPUs of a worker."""


class Room:
    """The room of a pipeline's cluster and of its budget.

    Args:
        pipeline, paths: the pipeline and its folder.
        address: of the Ray cluster; None: this machine.
    """

    def __init__(self, pipeline: LoadedPipeline, paths: PipelinePaths, address: str | None) -> None:
        self._pipeline, self._paths, self._address = pipeline, paths, address

    def fits(self, name: str, running: Iterable[str]) -> bool:
        """Whether a stage can run beside others.

        Stages without a sweep use no resources of the cluster.
        """
        sweep = self._pipeline.sweeps.get(name)
        if sweep is None:
            return True
        others = [other for other in running if other in self._pipeline.sweeps]
        if not others:
            return True
        try:
            left_of_budget(self._pipeline, self._paths, name, others)
            return fit_together([w for n in (name, *others) for w in self._workers(n)], self._nodes)
        except UserError:  # it says so when it runs alone
            return False

    def _workers(self, name: str) -> list[Amount]:
        """What each worker of a sweep holds."""
        placement = compute_placement(self._pipeline.sweeps[name].spec.resources, self._nodes)
        one = placement.allocation(1)
        return [(one.cpus, one.gpus)] * sum(placement.workers_per_trial)

    @cached_property
    def _nodes(self) -> Sequence[Node]:
        from tuning.cluster.warm_cluster import nodes_of

        return nodes_of(self._address)


def fit_together(workers: Iterable[Amount], nodes: Sequence[Node]) -> bool:
    """Whether all workers fit the machines at once; the largest are placed first."""
    free = [[node.cpus, node.gpus] for node in nodes]
    for cpus, gpus in sorted(workers, key=lambda w: (w[1], w[0]), reverse=True):
        place = next((f for f in free if f[0] + 1e-9 >= cpus and f[1] + 1e-9 >= gpus), None)
        if place is None:
            return False
        place[0] -= cpus
        place[1] -= gpus
    return True
