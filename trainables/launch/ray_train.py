"""Ray Train's part of a run: what a `TorchTrainer` is told, and what its failure is called."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from results.records.machines import Machine
from search_spaces.redaction import redact
from trainables.runtime.gpu_share import BACKEND, is_shared

if TYPE_CHECKING:
    from ray.train import RunConfig
    from ray.train.torch import TorchTrainer


_LONGEST = 1_000
"""Characters of an error that are kept in a trial's record."""
NODE_ID = "ray.io/node-id"
"""The label by which Ray knows a machine."""


@dataclass(frozen=True)
class Shape:
    """What the workers of a trial hold while they live.

    Attributes:
        workers: DDP ranks.
        cpus_per_worker, gpus_per_worker: as Ray counts them; fractions share a device.
        start_timeout_s: seconds until all workers must be up.
        folder: for Ray Train's own files.
        avoid: ids of machines that none of them may be on.
    """

    workers: int
    cpus_per_worker: float
    gpus_per_worker: float
    start_timeout_s: float
    folder: str
    avoid: tuple[str, ...] = ()


def run_config(name: str, folder: str, **more: Any) -> RunConfig:
    """Ray Train's settings of a run: nothing is retried, a start that fails included.

    Retries are the driver's business, which knows the budgets and records each attempt.
    """
    from ray.train import FailureConfig, RunConfig

    # Typed as Train V1, which knows no limit for the controller; at run time they are V2's.
    once: Any = FailureConfig
    failures = once(max_failures=0, controller_failure_limit=0)
    return RunConfig(name=name, storage_path=folder, failure_config=failures, **more)


def fit(
    loop: Callable[..., None],
    config: dict[str, Any],
    shape: Shape,
    run: RunConfig,
    trainer: type[TorchTrainer] | None = None,
) -> None:
    """Run a train loop in a `TorchTrainer` of a shape, to its end.

    Args:
        loop: run by every worker.
        config: its argument.
        shape: what the workers hold.
        run: Ray Train's settings.
        trainer: a special kind of trainer, if one is wanted.

    Raises:
        Exception: whatever `TorchTrainer.fit` raises; see `describe`.
    """
    from ray.train import ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    os.environ["RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S"] = str(shape.start_timeout_s)
    # Every look costs each worker a call. By default it is 2 s, and reports of loops wait for it.
    look_s = "0.2" if trainer is None else "0.5"
    os.environ.setdefault("RAY_TRAIN_HEALTH_CHECK_INTERVAL_S", look_s)
    os.environ.setdefault("RAY_TRAIN_ENABLE_PRINT_PATCH", "0")  # a second copy, secrets and all
    os.environ.setdefault("RAY_TRAIN_METRICS_ENABLED", "0")
    os.environ.setdefault("RAY_TRAIN_ENABLE_PREEMPTION_WATCHER", "0")  # one more process a run
    per_worker = {"CPU": shape.cpus_per_worker, "GPU": shape.gpus_per_worker}
    scaled: Any = ScalingConfig  # typed as Train V1, which knows no label selector
    scaling = scaled(
        num_workers=shape.workers,
        use_gpu=shape.gpus_per_worker > 0,
        resources_per_worker={k: v for k, v in per_worker.items() if v},
        label_selector={NODE_ID: f"!in({','.join(shape.avoid)})"} if shape.avoid else None,
    )
    shared = shape.workers > 1 and is_shared(shape.gpus_per_worker)
    (trainer or TorchTrainer)(
        loop,
        train_loop_config=config,
        torch_config=TorchConfig(backend=BACKEND) if shared else None,
        scaling_config=scaling,
        run_config=run,
    ).fit()


def this_machine() -> Machine:
    """The machine that this Ray process is on."""
    import ray

    here = ray.get_runtime_context().get_node_id()
    return Machine(id=here, name=socket.gethostname(), address=ray.util.get_node_ip_address())


def describe(error: BaseException) -> str:
    """One line that says which rank failed, and how: one that is gone before those that noticed."""
    failures: dict[int, Exception] = getattr(error, "worker_failures", {})
    if not failures:  # the controller's own failure, such as a start that took too long
        return in_one_line(getattr(error, "controller_failure", error))
    gone = {rank: e for rank, e in failures.items() if hasattr(e, "health_check_failure")}
    rank, failure = min((gone or failures).items())
    if rank in gone:
        why = in_one_line(gone[rank].health_check_failure)
        return f"rank {rank}: {type(failure).__name__}: {why}"
    return f"rank {rank}: {in_one_line(failure.__cause__ or failure)}"


def in_one_line(error: BaseException) -> str:
    """An exception's class and the first line of what it says; the log has the rest."""
    said = next((line for line in str(error).splitlines() if line.strip()), repr(error)).strip()
    line = redact(f"{type(error).__name__}: {said}")
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]} …"
