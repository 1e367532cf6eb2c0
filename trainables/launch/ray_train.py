"""Ray's part of a run: the settings of a `TorchTrainer`, and what a worker asks of Ray."""

from __future__ import annotations

import math
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from results.records.machines import Machine
from results.storage.log_filter import start_log_filter
from search_spaces.spec.failure import Notices
from search_spaces.spec.sweep import SweepSpec
from trainables.launch.node_notices import watch_node
from trainables.runtime.gpu_share import (
    BACKEND,
    THREADS,
    VISIBLE,
    is_shared,
    limit_compute,
    limit_memory,
)
from trainables.runtime.provenance import note_market

if TYPE_CHECKING:
    import torch
    from ray.train import BackendConfig, RunConfig
    from ray.train.torch import TorchTrainer
    from ray.util.placement_group import PlacementGroup


NODE_ID = "ray.io/node-id"
"""The label by which Ray knows a machine."""
OWN_CLUSTER = "TUNE_OWN_CLUSTER"
"""A variable of drivers that have started their cluster, and of its processes."""
_MARKET = "ray.io/market-type"
"""Ray's label of what a machine was bought as: `spot` or another name."""


@dataclass(frozen=True)
class WorkerGroupSpec:
    """The workers of a trial, and the resources that they hold.

    Attributes:
        workers: DDP ranks.
        cpus_per_worker, gpus_per_worker: as Ray counts them; fractions share a device.
        start_timeout_s: seconds until all workers must be up.
        folder: for Ray Train's own files.
        avoid: ids of machines that must not run any of them.
        preload: a trainable that a lane imports before it waits for its first trial.
        process_group_timeout_s: after which a collective of the workers fails.
        notices: clouds whose notices of a machine's end count; see `watch_node`.
        nccl: (name, value) of variables of their environment.
    """

    workers: int
    cpus_per_worker: float
    gpus_per_worker: float
    start_timeout_s: float
    folder: str
    avoid: tuple[str, ...] = ()
    preload: str = ""
    process_group_timeout_s: float = 1800.0
    notices: Notices = "auto"
    nccl: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(
        cls, spec: SweepSpec, workers: int, gpus_per_worker: float, folder: str, preload: str = ""
    ) -> Self:
        """The workers of a trial of a sweep."""
        # the choice of kernels, and with it a curve's last bits, depends on the multiprocessors
        is_free = spec.resources.gpus_per_worker == "auto" and THREADS not in os.environ
        return cls(
            workers,
            spec.resources.cpus_per_worker,
            gpus_per_worker,
            spec.failure.start_timeout,
            folder,
            preload=preload,
            process_group_timeout_s=spec.resources.process_group_timeout_s,
            notices=spec.failure.preemption_notices,
            nccl=(*spec.resources.nccl.items(), *([(THREADS, "100")] if is_free else [])),
        )

    @property
    def bundle(self) -> dict[str, float]:
        """The resources that are reserved for one worker."""
        each = {"CPU": self.cpus_per_worker, "GPU": self.gpus_per_worker}
        return {name: amount for name, amount in each.items() if amount}

    @property
    def label_selector(self) -> dict[str, str] | None:
        """The machines that may run a worker, by their labels; None: all."""
        return {NODE_ID: f"!in({','.join(self.avoid)})"} if self.avoid else None


def run_config(name: str, folder: str, **more: Any) -> RunConfig:
    """Ray Train's settings of a run: it retries nothing, not even a failed start.

    The driver retries: it knows the budgets and records each attempt.
    """
    from ray.train import FailureConfig, RunConfig

    # Type checkers see Train V1, which has no limit for the controller; at run time it is V2.
    failure_config: Any = FailureConfig
    none = {"max_failures": 0, "controller_failure_limit": 0, "max_preemption_failures": 0}
    failures = failure_config(**none)
    return RunConfig(name=name, storage_path=folder, failure_config=failures, **more)


def fit(
    loop: Callable[..., None],
    config: dict[str, Any],
    spec: WorkerGroupSpec,
    run: RunConfig,
    trainer: type[TorchTrainer],
    check_s: float = 0.5,
) -> None:
    """Run a train loop in a `TorchTrainer`, to its end.

    Args:
        loop: run by every worker, with `config`.
        trainer: the class to use.
        check_s: seconds between two checks, each of which calls every worker. Ray's default is 2 s,
            and reports of loops wait for a check.

    Raises:
        Exception: any that `TorchTrainer.fit` raises; see `describe_failure`.
    """
    from trainables.launch.process_group import NodeNetworkConfig

    set_environment(spec, check_s)
    shared = spec.workers > 1 and is_shared(spec.gpus_per_worker)
    backend = BACKEND if shared or os.environ.get("TUNE_DEVICE") == "cpu" else None
    timeout_s = math.ceil(spec.process_group_timeout_s)
    trainer(
        loop,
        train_loop_config=config,
        torch_config=NodeNetworkConfig(backend=backend, timeout_s=timeout_s, nccl=spec.nccl),
        scaling_config=scaling_config(spec),
        run_config=run,
    ).fit()


def set_environment(spec: WorkerGroupSpec, check_s: float) -> None:
    """Set the variables by which Ray Train is configured, in the process that calls `fit`."""
    os.environ["RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S"] = str(spec.start_timeout_s)
    os.environ.setdefault("RAY_TRAIN_HEALTH_CHECK_INTERVAL_S", str(check_s))
    os.environ.setdefault("RAY_TRAIN_METRICS_ENABLED", "0")
    os.environ.setdefault("RAY_TRAIN_ENABLE_PREEMPTION_WATCHER", "0")  # one more process per run


def over_node_network(backend: BackendConfig, spec: WorkerGroupSpec) -> BackendConfig:
    """The settings of torch's process group, over the network of the Ray nodes; others stay."""
    from ray.train.torch import TorchConfig

    from trainables.launch.process_group import NodeNetworkConfig

    if type(backend) is not TorchConfig:
        return backend
    found = NodeNetworkConfig(**{**vars(backend), "nccl": spec.nccl})
    return found if spec.gpus_per_worker else replace(found, backend="gloo")


def scaling_config(spec: WorkerGroupSpec) -> Any:
    """Number, resources and machines of the workers."""
    from ray.train import ScalingConfig

    make: Any = ScalingConfig  # typed as Train V1, which has no label selector
    return make(
        num_workers=spec.workers,
        use_gpu=spec.gpus_per_worker > 0,
        resources_per_worker=spec.bundle,
        label_selector=spec.label_selector,
    )


@dataclass(frozen=True)
class TrainWorker:
    """This process as a worker of Ray Train.

    Attributes:
        rank, world_size, local_rank, local_world_size: of it.
        device: of which it can use its share only.
        machine: that it runs on.
        group: the placement group that the run's processes hold.
    """

    rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    device: torch.device
    machine: Machine
    group: PlacementGroup | None

    @classmethod
    def begin(cls, gpus_per_worker: float, notices: Notices) -> Self:
        """In a worker, before CUDA starts: claim its device, and watch its machine.

        Its output is filtered, and attempts record whether the machine is a spot machine.
        """
        import ray.train
        from ray.util.placement_group import get_current_placement_group

        start_log_filter()
        device, context = claim_device(gpus_per_worker), ray.train.get_context()
        labels: Any = ray.get_runtime_context().get_node_labels()  # of texts, not of lists
        note_market(labels.get(_MARKET))
        if context.get_local_rank() == 0:  # the others of the machine learn of it at a report
            watch_node(notices)
        return cls(
            context.get_world_rank(),
            context.get_world_size(),
            context.get_local_rank(),
            context.get_local_world_size(),
            device,
            this_machine(),
            get_current_placement_group(),
        )


def claim_device(gpus_per_worker: float) -> torch.device:
    """In a worker, before CUDA starts: its device, of which it can use its share only."""
    import torch
    from ray.train.torch import get_device

    if not gpus_per_worker:
        os.environ[VISIBLE] = ""  # Ray does not hide the devices of others
    limit_compute(gpus_per_worker)
    device = torch.device(os.environ.get("TUNE_DEVICE") or get_device())
    limit_memory(gpus_per_worker, device)
    return device


def this_machine() -> Machine:
    """The machine that this Ray process runs on."""
    import ray

    node_id = ray.get_runtime_context().get_node_id()
    return Machine(id=node_id, name=socket.gethostname(), address=ray.util.get_node_ip_address())
