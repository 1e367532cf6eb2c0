"""A trainable that shows on what it runs, and whose steps on the device go wrong by name."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from pydantic import Field
from torch.nn import functional as F

from tests.ray.stepping import Stepping, SteppingConfig
from trainables.causal_lm.trainable import CausalLM
from trainables.job import Answer
from trainables.runtime.gpu_share import tensors_share
from trainables.worker import Worker

MIB = 2**20
PATIENCE_S = 60.0
"""Seconds for which a trial waits for the others."""
CROWD = 4
"""Trials that share a device at once."""
DIGITS, LLM = (Path(__file__).parents[2] / "search_spaces" / f"{n}.yaml" for n in ("digits", "llm"))


def sets(*changes: str) -> list[str]:
    """Arguments of the command line for changes of a sweep file."""
    return [arg for change in changes for arg in ("--set", change)]


class ProbeConfig(SteppingConfig):
    """Settings of `Probe`."""

    kind: str = Field(description="what happens at step 2: a method, or nothing")
    crowd: int = Field(CROWD, description="trials that take their share at once")
    marks: str = Field("", description="folder of files by which trials wait for each other")


class Probe(Stepping):
    """Each fault is a method."""

    Config = ProbeConfig
    device: torch.device
    before: float
    took_s: float

    def train(self, config: Any, worker: Worker) -> None:
        self.device, self.kept = worker.device, []  # type: ignore[var-annotated]
        self.before, self.took_s = _allocated_mib(), 0.0
        super().train(config, worker)
        if config.kind == "leaves_an_error":
            self._read_out_of_range()
        self.kept.clear()

    def step(self, number: int, config: Any, worker: Worker) -> float:
        if number == 2 and (fault := getattr(self, config.kind.rstrip("_0123456789"), None)):
            fault(config, worker)
        x = torch.randn(256, 256, device=worker.device)
        dist.all_reduce(x)  # also where there is one rank
        return float(number + 0 * (x @ x).sum().item())

    def summed(self, past: list[float], config: Any) -> dict[str, float]:
        now, since, self.took_s = time.monotonic(), self.took_s, time.monotonic()
        return {
            "loss": sum(past),
            "pid": float(os.getpid()),
            "on_gpu": float(self.device.type == "cuda"),
            "sees_gpus": float(torch.cuda.device_count()),
            "nccl": float(dist.is_initialized() and dist.get_backend() == "nccl"),
            "before_mib": self.before,
            "report_s": now - since if since else 0.0,
        }

    def out_of_memory(self, config: Any, worker: Worker) -> None:
        self.kept.append(torch.empty(2**42, dtype=torch.uint8, device=worker.device))

    def out_of_range(self, config: Any, worker: Worker) -> None:
        self._read_out_of_range()
        torch.cuda.synchronize()

    def hides_an_error(self, config: Any, worker: Worker) -> None:
        try:
            self.out_of_range(config, worker)
        except RuntimeError:
            raise ValueError("something else") from None

    def raises(self, config: Any, worker: Worker) -> None:
        raise ValueError("on every rank")

    def takes_more(self, config: Any, worker: Worker) -> None:
        """A quarter of the device, without space for what the process holds beside tensors."""
        self._together("before", config)
        self._take(0.25)

    def takes_its_share(self, config: Any, worker: Worker) -> None:
        """What a quarter of the device leaves to tensors, while the others have theirs."""
        self._together("before", config)
        total = torch.cuda.get_device_properties(self.device).total_memory
        self._take(tensors_share(1 / CROWD, total) - 0.002)
        self._together("after", config, int(config.crowd))

    def dies_once(self, config: Any, worker: Worker) -> None:
        self._take(0.5)
        if worker.job.attempt == 1:
            os.kill(os.getpid(), signal.SIGKILL)

    def _read_out_of_range(self) -> None:
        table = torch.zeros(8, 4, device=self.device)
        F.embedding(torch.full((64,), 1_000_000, device=self.device), table)

    def _take(self, share: float) -> None:
        size = int(share * torch.cuda.get_device_properties(self.device).total_memory)
        self.kept.append(torch.ones(size, dtype=torch.uint8, device=self.device))

    def _together(self, when: str, config: Any, trials: int = CROWD) -> None:
        (Path(config.marks) / f"{when}-{os.getpid()}.mark").touch()
        deadline = time.monotonic() + PATIENCE_S
        while len(list(Path(config.marks).glob(f"{when}-*.mark"))) < trials:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{when}: the other trials did not come")
            threading.Event().wait(0.05)


def _allocated_mib() -> float:
    return torch.cuda.memory_allocated() / MIB if torch.cuda.is_available() else 0.0


class MeasuredLanguageModel(CausalLM):
    """Reports its process, and the memory on the device that was taken before it began."""

    def train(self, config: Any, worker: Worker) -> None:
        report, before = worker.report, _allocated_mib()

        def measured(*, metrics: Any, **said: Any) -> Answer:
            more = {"pid": float(os.getpid()), "before_mib": before}
            return report(metrics={**metrics, **more}, **said)

        worker.report = measured  # type: ignore[method-assign]
        super().train(config, worker)
