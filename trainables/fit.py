"""A `TorchTrainer` running in a thread, and the mailbox through which it is heard and answered."""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from trainables.mailbox import Ended, Event, Mailbox, Reported
from trainables.worker import Answer, TrialJob

if TYPE_CHECKING:
    from ray.actor import ActorHandle
    from ray.train import RunConfig

_POLL_S = 1.0


class TrialError(RuntimeError):
    """A trial's processes ended before the trial did; the message says which rank, and how."""


@dataclass(frozen=True)
class Shape:
    """What the workers of a trial hold while they live.

    Attributes:
        workers: DDP ranks.
        cpus_per_worker, gpus_per_worker: as Ray counts them; fractions share a device.
        start_timeout_s: seconds until all workers must be up.
        folder: for Ray Train's own files.
    """

    workers: int
    cpus_per_worker: float
    gpus_per_worker: float
    start_timeout_s: float
    folder: str


class Runner(Protocol):
    """Runs one trial at a time. One thread uses it."""

    def start(self, job: TrialJob) -> None:
        """Begin a trial; only when none is running."""
        ...

    def next_event(self) -> Reported | Ended:
        """Wait for the trial's next event.

        Raises:
            TrialError: its processes ended; the runner is of no more use and must be closed.
        """
        ...

    def answer(self, answer: Answer) -> None:
        """Answer the last report."""
        ...

    def close(self) -> None:
        """Free everything; bounded in time, whatever state it is in."""
        ...


def open_mailbox() -> ActorHandle[Mailbox]:
    """Start the mailbox actor. It holds no CPU and serves any number of waiting callers."""
    import ray

    return ray.remote(Mailbox).options(num_cpus=0, max_concurrency=10_000).remote()  # type: ignore[return-value]  # it is an actor's handle


def run_config(name: str, folder: str, **more: Any) -> RunConfig:
    """Ray Train's settings of a run: nothing is retried, a start that fails included."""
    from ray.train import FailureConfig, RunConfig

    # Typed as Train V1, which knows no limit for the controller; at run time they are V2's.
    once: Any = FailureConfig
    failures = once(max_failures=0, controller_failure_limit=0)
    return RunConfig(name=name, storage_path=folder, failure_config=failures, **more)


class Fit:
    """One `TorchTrainer.fit()` in a thread.

    Retries are the driver's business, which knows the budgets and records each attempt: failures
    are final here, and the start is bounded.
    """

    def __init__(self, shape: Shape, mailbox: ActorHandle[Mailbox]) -> None:
        self.id = f"fit-{uuid.uuid4().hex[:8]}"
        self.mailbox = mailbox
        self._shape = shape
        self._error: Exception | None = None
        self._thread: threading.Thread | None = None

    def run(self, loop: Callable[..., None], config: dict[str, Any], run: RunConfig) -> None:
        """Start fitting in the background."""
        self._thread = threading.Thread(
            target=self._fit, args=(loop, config, run), name=self.id, daemon=True
        )
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether it is still fitting."""
        return self._thread is not None and self._thread.is_alive()

    def join(self, timeout_s: float) -> None:
        """Wait until it ended, at most so long."""
        if self._thread is not None:
            self._thread.join(timeout_s)

    def call(self, method: str, *args: Any) -> Any:
        """Call the mailbox for this run."""
        import ray

        return ray.get(getattr(self.mailbox, method).remote(self.id, *args))

    def next_event(self) -> Reported | Ended | None:
        """The next event; None when the fit ended well and nothing is left to hear.

        Raises:
            TrialError: it failed.
        """
        while True:
            alive = self.alive  # asked first: what was posted before the end is heard
            event: Event | None = self.call("event", _POLL_S if alive else 0.01)
            if isinstance(event, Reported | Ended):
                return event
            if event is None and not alive:
                if self._error is None:
                    return None
                raise TrialError(describe(self._error)) from self._error

    def _fit(self, loop: Callable[..., None], config: dict[str, Any], run: RunConfig) -> None:
        from ray.train import ScalingConfig
        from ray.train.torch import TorchTrainer

        os.environ["RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S"] = str(self._shape.start_timeout_s)
        os.environ.setdefault("RAY_TRAIN_HEALTH_CHECK_INTERVAL_S", "0.2")  # 2 s: reports wait
        os.environ.setdefault("RAY_TRAIN_METRICS_ENABLED", "0")
        per_worker = {"CPU": self._shape.cpus_per_worker, "GPU": self._shape.gpus_per_worker}
        scaling = ScalingConfig(
            num_workers=self._shape.workers,
            use_gpu=self._shape.gpus_per_worker > 0,
            resources_per_worker={k: v for k, v in per_worker.items() if v},
        )
        try:
            TorchTrainer(
                loop, train_loop_config=config, scaling_config=scaling, run_config=run
            ).fit()
        except Exception as e:  # noqa: BLE001 - raised again by the thread that waits
            self._error = e


def describe(error: Exception) -> str:
    """One line that says which rank failed, and how."""
    failures: dict[int, Exception] = getattr(error, "worker_failures", {})
    if not failures:
        return f"{type(error).__name__}: {_first_line(error)}"
    rank, failure = min(failures.items())
    cause = failure.__cause__ or failure
    return f"rank {rank}: {type(cause).__name__}: {_first_line(cause)}"


def _first_line(error: BaseException) -> str:
    return next((line for line in str(error).splitlines() if line.strip()), repr(error)).strip()
