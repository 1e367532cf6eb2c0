"""Ray's part of a run: the broker's actor, settings of a `TorchTrainer`, messages of failures."""

from __future__ import annotations

import math
import os
import re
import socket
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from results.records.machines import Machine
from search_spaces.redaction import redact
from search_spaces.spec.failure import Notices
from trainables.launch.broker import Broker
from trainables.runtime.gpu_share import (
    BACKEND,
    hide_devices,
    is_shared,
    limit_compute,
    limit_memory,
)
from trainables.runtime.provenance import note_market
from trainables.user_code.frames import user_lines

if TYPE_CHECKING:
    import torch
    from ray.actor import ActorHandle
    from ray.train import BackendConfig, RunConfig
    from ray.train.torch import TorchTrainer


_PING_TIMEOUT_S = 60.0
_MAX_ERROR_CHARS = 1_000
"""Characters of an error that a trial's record keeps."""
_NO_ACTOR = "error raised in its creation task"
_OTHERS = re.compile(r" Process \d+ has [\d.]+ \w+ memory in use\.")
"""What each other process holds of a GPU, in torch's error."""
NODE_ID = "ray.io/node-id"
"""The label by which Ray knows a machine."""
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
        part: of these resources that a worker holds by Ray's count; the rest is for a spare.
        omp_is_set: whether the user has set `OMP_NUM_THREADS`.
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
    part: float = 1.0
    omp_is_set: bool = False

    @property
    def bundle(self) -> dict[str, float]:
        """The resources that are reserved for one worker."""
        each = {"CPU": self.cpus_per_worker, "GPU": self.gpus_per_worker}
        return {name: amount for name, amount in each.items() if amount}

    @property
    def label_selector(self) -> dict[str, str] | None:
        """The machines that may run a worker, by their labels; None: all."""
        return {NODE_ID: f"!in({','.join(self.avoid)})"} if self.avoid else None


def start_broker() -> ActorHandle[Broker]:
    """Start the broker actor on the driver's machine, so that it survives the loss of others.

    It holds no CPU and serves any number of waiting callers.
    """
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    actor = ray.remote(Broker).options(num_cpus=0, max_concurrency=10_000, scheduling_strategy=here)
    return actor.remote()  # type: ignore[return-value]  # it is an actor's handle


def is_alive(broker: ActorHandle[Broker]) -> bool:
    """Whether the broker actor answers; its process may have been killed."""
    import ray

    lanes: Any = broker.lanes_up.remote()
    try:
        ray.get(lanes, timeout=_PING_TIMEOUT_S)
    except ray.exceptions.RayError:
        return False
    return True


def machines_of(answer: Any) -> dict[str, list[str]]:
    """A broker's answer of machine ids by key; empty if it has died, which `is_alive` reports."""
    import ray

    try:
        return dict(ray.get(answer))
    except ray.exceptions.RayError:
        return {}


def forget_attempts(broker: ActorHandle[Broker], wait_s: float) -> bool:
    """See `Broker.forget_attempts`; False also if the broker has died."""
    import ray

    forgotten: Any = broker.forget_attempts.remote(wait_s)
    try:
        return bool(ray.get(forgotten))
    except ray.exceptions.RayError:
        return False


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
    trainer(
        loop,
        train_loop_config=config,
        torch_config=NodeNetworkConfig(backend=_backend(spec), **_process_group(spec)),
        scaling_config=scaling_config(spec),
        run_config=run,
    ).fit()


def set_environment(spec: WorkerGroupSpec, check_s: float) -> None:
    """Set the variables by which Ray Train is configured, in the process that calls `fit`."""
    os.environ["RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S"] = str(spec.start_timeout_s)
    os.environ.setdefault("RAY_TRAIN_HEALTH_CHECK_INTERVAL_S", str(check_s))
    os.environ.setdefault("RAY_TRAIN_ENABLE_PRINT_PATCH", "0")  # a second copy, secrets included
    os.environ.setdefault("RAY_TRAIN_METRICS_ENABLED", "0")
    os.environ.setdefault("RAY_TRAIN_ENABLE_PREEMPTION_WATCHER", "0")  # one more process per run


def _backend(spec: WorkerGroupSpec) -> str | None:
    """The backend of the process group, if the GPUs are shared; None: Ray Train's choice."""
    return BACKEND if spec.workers > 1 and is_shared(spec.gpus_per_worker) else None


def _process_group(spec: WorkerGroupSpec) -> dict[str, Any]:
    return {"timeout_s": math.ceil(spec.process_group_timeout_s), "nccl": spec.nccl}


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
        resources_per_worker={name: v * spec.part for name, v in spec.bundle.items()},
        label_selector=spec.label_selector,
    )


def checkpoint_snapshot(names: list[str]) -> str:
    """The file in which Ray Train lists a run's checkpoints, the newest last (Train V2)."""
    from ray.train.v2._internal.execution.checkpoint.checkpoint_manager import (
        _CheckpointManagerState,
        _TrainingResultState,
    )

    results = [_TrainingResultState(checkpoint_dir_name=name, metrics={}) for name in names]
    state = _CheckpointManagerState(
        checkpoint_results=results,
        checkpoint_report_indices=list(range(len(names))),
        latest_checkpoint_result=results[-1],
        pending_training_results=[],
        pending_validation_specs=[],
        current_report_index=len(names),
        validated_checkpoint_dir_names=[],
        timed_out_validation_checkpoint_dir_names=[],
        failed_validation_checkpoint_dir_names=[],
    )
    return str(state.model_dump_json())


def claim_device(gpus_per_worker: float) -> torch.device:
    """In a worker, before CUDA starts: its device, of which it can use its share only."""
    from ray.train.torch import get_device

    if not gpus_per_worker:
        hide_devices()
    limit_compute(gpus_per_worker)
    device = get_device()
    limit_memory(gpus_per_worker, device)
    return device


def this_machine() -> Machine:
    """The machine that this Ray process runs on."""
    import ray

    node_id = ray.get_runtime_context().get_node_id()
    return Machine(id=node_id, name=socket.gethostname(), address=ray.util.get_node_ip_address())


def note_spot_machine() -> None:
    """In a worker: attempts record whether this machine is a spot machine, as its label says."""
    import ray

    labels: Any = ray.get_runtime_context().get_node_labels()  # of texts, not of lists
    note_market(labels.get(_MARKET))


def describe_failure(error: BaseException) -> str:
    """One line with the failed rank and its error; a rank that died comes before the others."""
    failures: dict[int, Exception] = getattr(error, "worker_failures", {})
    if not failures:  # the controller's own failure, such as a start that took too long
        return error_line(getattr(error, "controller_failure", error))
    died = {rank: e for rank, e in failures.items() if hasattr(e, "health_check_failure")}
    rank, failure = min((died or failures).items())
    if rank in died:
        cause = error_line(died[rank].health_check_failure)
        return f"rank {rank}: {type(failure).__name__}: {cause}"
    return f"rank {rank}: {error_line(failure.__cause__ or failure)}"


def error_line(error: BaseException) -> str:
    """An exception's class, the first line of its message, redacted, and the user's lines; the log
    has the rest.
    """
    lines = [line for line in _OTHERS.sub("", str(error)).splitlines() if line.strip()]
    message = f"{type(error).__name__}: {(lines or [repr(error)])[0].strip()}"
    # Ray's message of an actor that could not begin ends with the cause.
    line = redact(lines[-1] if _NO_ACTOR in message else message)
    line = line if len(line) <= _MAX_ERROR_CHARS else f"{line[:_MAX_ERROR_CHARS]} …"
    return line + user_lines(error)


def without_secrets(error: Exception) -> Exception:
    """The exception, or another one with its redacted message: Ray writes it to its own logs."""
    text = "".join(traceback.format_exception(error))
    return error if redact(text) == text else RuntimeError(error_line(error))
