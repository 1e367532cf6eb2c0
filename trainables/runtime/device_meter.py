"""Measures how busy a rank's device is, and how much of its memory the rank needs."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from results.records.worker_samples import GPU_NEEDED, GPU_PERCENT
from trainables.runtime.gpu_share import CONTEXT, mps_is_running

if TYPE_CHECKING:
    import torch

DeviceMeter = Callable[[], dict[str, float]]
"""Returns `GPU_PERCENT`, over about a second, and `GPU_NEEDED`, unless no other process can use the
device. Called every few seconds, at a heartbeat or report of the rank."""


def nvml_meter(device: torch.device) -> DeviceMeter | None:
    """Measures an NVIDIA GPU by the library of its driver; None for other devices, or if that does
    not know it, as it does not know a part of a GPU (MIG).
    """
    if device.type != "cuda":
        return None
    import torch

    gpu, handle = torch.cuda.get_device_properties(device), ctypes.c_void_p()
    mode, rates = ctypes.c_uint(), (ctypes.c_uint * 2)()  # of multiprocessors, of memory bandwidth

    def call(function: str, *args: Any) -> None:
        if code := getattr(nvml, function)(*args):
            raise OSError(f"{function} returned {code}")

    def measure() -> dict[str, float]:
        call("nvmlDeviceGetUtilizationRates", handle, ctypes.byref(rates))
        needed = torch.cuda.max_memory_reserved(device) + CONTEXT
        can_share = mode.value == 0 or mps_is_running()
        more = {GPU_NEEDED: 100 * needed / gpu.total_memory} if can_share else {}
        return {GPU_PERCENT: float(rates[0]), **more}

    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
        call("nvmlInit_v2")
        call("nvmlDeviceGetHandleByUUID", f"GPU-{gpu.uuid}".encode(), ctypes.byref(handle))
        call("nvmlDeviceGetComputeMode", handle, ctypes.byref(mode))
        measure()
    except (AttributeError, OSError):
        return None
    return measure
