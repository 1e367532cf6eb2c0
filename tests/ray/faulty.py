"""A trainable that injects a fault at its fourth step, once or always."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
from pydantic import Field

from tests.ray.stepping import STATE, Stepping, SteppingConfig
from trainables.runtime.preemption import preemption_requested
from trainables.worker import Worker


def siblings() -> dict[psutil.Process, str]:
    """The cluster's processes on this machine, with their titles."""
    raylet, found = psutil.Process().parent(), {}
    for process in raylet.children() if raylet else ():
        with suppress(psutil.Error):  # it has just ended
            found[process] = " ".join(process.cmdline())
    return found


class FaultyConfig(SteppingConfig):
    """Settings."""

    kind: str = Field(description="the fault: a method of the trainable")
    marks: str = Field(description="folder of files that mark injected faults")
    batch_size: int = Field(8, description="samples per step, of all workers together")
    micro_batch_size: int | None = Field(None, description="samples of one worker at once")


class Faulty(Stepping):
    """Each fault is a method."""

    Config = FaultyConfig

    def step(self, number: int, config: Any, worker: Worker) -> float:
        if number == 4:
            print("token", os.environ["HF_TOKEN"], flush=True)
            worker.barrier()
            if fault := getattr(self, config.kind, None):
                fault(config, worker)
        return float(number)

    def summed(self, past: list[float], config: Any) -> dict[str, float]:
        bad = config.kind == "diverges" and len(past) == 3
        return {"loss": float("nan") if bad else sum(past)}

    def once(self, config: Any) -> bool:
        """True at the first call for this fault, in any attempt."""
        mark = Path(config.marks) / f"{config.kind}.mark"
        new = not mark.exists()
        mark.touch()
        return new

    def rank_0_is_killed(self, config: Any, worker: Worker) -> None:
        if worker.rank == 0 and self.once(config):
            os.kill(os.getpid(), signal.SIGKILL)

    def rank_1_is_killed(self, config: Any, worker: Worker) -> None:
        if worker.rank == 1 and self.once(config):
            os.kill(os.getpid(), signal.SIGKILL)

    def rank_1_hangs(self, config: Any, worker: Worker) -> None:
        if worker.rank == 1 and self.once(config):
            threading.Event().wait()

    def rank_1_is_frozen(self, config: Any, worker: Worker) -> None:
        if worker.rank == 1 and self.once(config):
            os.kill(os.getpid(), signal.SIGSTOP)

    def is_preempted(self, config: Any, worker: Worker) -> None:
        if worker.rank == 1 and self.once(config):
            heard = threading.Event()
            while getattr(signal.getsignal(signal.SIGTERM), "__module__", "") != (
                "trainables.runtime.preemption"
            ):
                heard.wait(0.01)
            os.kill(os.getpid(), signal.SIGTERM)
            while not preemption_requested():
                heard.wait(0.01)

    def kills_broker(self, config: Any, worker: Worker) -> None:
        self.kill("ray::Broker", config, worker)

    def kill(self, title: str, config: Any, worker: Worker) -> bool:
        """Kill the cluster's processes with a title; True on the rank that did."""
        if worker.rank != 0 or not self.once(config):
            return False
        titles = siblings()
        found = [process for process, name in titles.items() if name.startswith(title)]
        assert found, titles
        for process in found:
            process.kill()
        return True

    def is_poison(self, config: Any, worker: Worker) -> None:
        raise ValueError(f"bad shape {os.getpid()} of {os.environ['HF_TOKEN']}")

    def needs_much_memory(self, config: Any, worker: Worker) -> None:
        import torch

        if (config.micro_batch_size or config.batch_size // worker.world_size) <= 2:
            return
        before = resource.getrlimit(resource.RLIMIT_AS)
        limit = psutil.Process().memory_info().vms + 2**28
        resource.setrlimit(resource.RLIMIT_AS, (limit, before[1]))
        try:
            torch.empty(2**30)
        finally:
            resource.setrlimit(resource.RLIMIT_AS, before)

    def damaged(self, config: Any, worker: Worker, damage: Callable[[Path], object]) -> None:
        """Damage the newest checkpoint, then fail; once."""
        worker.saver.wait()  # step 3 is committed behind the training
        first = worker.rank == 0 and self.once(config)
        if first:
            damage(worker.job.paths.checkpoint(3))
        if worker.sum({"first": float(first)})["first"]:
            raise RuntimeError("the disk is worn")

    def loses_a_checkpoint(self, config: Any, worker: Worker) -> None:
        self.damaged(config, worker, lambda folder: os.truncate(folder / STATE, 1))

    def flips_a_bit(self, config: Any, worker: Worker) -> None:
        def flip(folder: Path) -> None:
            data = (folder / STATE).read_bytes()
            (folder / STATE).write_bytes(bytes([data[0] ^ 1]) + data[1:])

        self.damaged(config, worker, flip)

    def loses_a_manifest(self, config: Any, worker: Worker) -> None:
        self.damaged(config, worker, lambda folder: (folder / "manifest.json").unlink())

    def loses_a_folder(self, config: Any, worker: Worker) -> None:
        self.damaged(config, worker, shutil.rmtree)
