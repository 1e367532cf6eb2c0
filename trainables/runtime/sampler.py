"""Samples what the process of a rank uses, and counts each moment to one phase of its work."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING

from results.records.worker_samples import sample_line
from results.trial_paths import TrialPaths
from trainables.runtime.device_meter import DeviceMeter

if TYPE_CHECKING:
    import torch


_START, _COMPUTE = "start", "compute"


class PhaseTimes:
    """Seconds by phase; see `results.records.worker_samples.PHASES`."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._phase, self._since = _START, time.perf_counter()

    @contextmanager
    def of(self, phase: str) -> Iterator[None]:
        """Count the block to a phase, without blocks inside it that have another."""
        outer = self._switch(phase)
        try:
            yield
        finally:
            self._switch(outer)

    def started(self) -> None:
        """From now on what has no phase is `compute`."""
        if self._phase == _START:
            self._switch(_COMPUTE)

    def waited(self, seconds: float) -> None:
        """Count seconds of `compute` since the last `take` to `communication`."""
        self._switch(self._phase)
        part = min(max(0.0, seconds), self._seconds.get(_COMPUTE, 0.0))
        self._add(_COMPUTE, -part)
        self._add("communication", part)

    def take(self) -> dict[str, float]:
        """Seconds by phase since the last call."""
        self._switch(self._phase)
        taken, self._seconds = self._seconds, {}
        return taken

    def _switch(self, phase: str) -> str:
        now, before = time.perf_counter(), self._phase
        self._add(before, now - self._since)
        self._phase, self._since = phase, now
        return before

    def _add(self, phase: str, seconds: float) -> None:
        self._seconds[phase] = self._seconds.get(phase, 0.0) + seconds


_SHORTEST_S, _INTERVALS = 1.0, ((0.1, 10.0), (0.01, 60.0))
"""(part of the age of the attempt, longest in seconds), of which the longest counts: a short trial
has samples too, and who watches a temperature cannot wait for more than a minute."""
_MB = 1e6


class UsageSampler:
    """Appends samples of one rank beside the logs of an attempt.

    Args:
        times: the rank's clock.

    Attributes:
        meter: of its device.
    """

    def __init__(
        self, paths: TrialPaths, attempt: int, rank: int, device: torch.device, times: PhaseTimes
    ) -> None:
        import psutil

        self._file, self._device, self.times = paths.samples(attempt, rank), device, times
        self._process = psutil.Process()
        self._process.cpu_percent(None)  # the first call starts the measurement
        self._began, self._next = time.monotonic(), 0.0
        self._place = {"node": socket.gethostname(), **gpu_place(device)}
        self.meter: DeviceMeter = dict

    def sample(self, step: int, *, last: bool = False) -> None:
        """Record a sample, if the one before is old enough, or it is the last one."""
        now = time.monotonic()
        if now < self._next and not last:
            return
        age = now - self._began
        self._next = now + max(_SHORTEST_S, *(min(part * age, most) for part, most in _INTERVALS))
        values = self._of_process()
        with suppress(OSError):  # containers lose NVML while CUDA goes on
            values |= self.meter()
        if self._device.type == "cuda":
            values |= self._of_gpu()
        line = sample_line(step, time.time(), values, self.times.take(), self._place)
        with suppress(OSError), open(self._file, "a", encoding="utf-8") as f:
            f.write(line)  # no fsync, and no error: these values are only displayed

    def _of_process(self) -> dict[str, float]:
        """Network counts are of the machine since its start; disk counts of this process."""
        import psutil

        network = psutil.net_io_counters()
        values = {
            "system/cpu_percent": self._process.cpu_percent(None),
            "system/memory_mb": self._process.memory_info().rss / _MB,
            "system/network_sent_mb": network.bytes_sent / _MB,
            "system/network_received_mb": network.bytes_recv / _MB,
        }
        if hasattr(self._process, "io_counters"):  # not on macOS
            disk = self._process.io_counters()
            values["system/disk_read_mb"] = disk.read_bytes / _MB
            values["system/disk_written_mb"] = disk.write_bytes / _MB
        return values

    def _of_gpu(self) -> dict[str, float]:
        """Of the rank's own GPU; all but memory need NVIDIA's `nvidia-ml-py`."""
        import torch

        values = {"system/gpu_memory_mb": torch.cuda.memory_reserved(self._device) / _MB}
        if find_spec("pynvml") is not None:
            values["system/gpu_celsius"] = float(torch.cuda.temperature(self._device))
            values["system/gpu_watts"] = torch.cuda.power_draw(self._device) / 1e3
        return values


def gpu_place(device: torch.device) -> dict[str, str]:
    """Number of a rank's GPU on its machine, and the UUID by which NVIDIA's tools name it."""
    if device.type != "cuda":
        return {}
    import torch

    index = torch.cuda.current_device() if device.index is None else device.index
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    number = visible.split(",")[index].strip() if visible else str(index)
    return {"gpu": number, "uuid": f"GPU-{torch.cuda.get_device_properties(device).uuid}"}
