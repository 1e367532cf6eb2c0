"""Measures how busy a rank's device is, and how much of its memory the rank needs."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from trainables.runtime.gpu_share import CONTEXT, mps_is_running

if TYPE_CHECKING:
    import torch


class DeviceUse(NamedTuple):
    """Use of a device, in percent.

    Attributes:
        busy: part of about the last second in which it computed, for any process.
        needed: largest part of its memory that this process needed in the trial; None: no other
            process can use the device.
    """

    busy: float
    needed: float | None


DeviceMeter = Callable[[], DeviceUse]
"""Called every few seconds, at a heartbeat or report of the rank."""


class NvmlMeter:
    """Measures an NVIDIA GPU by the library of its driver.

    Raises:
        OSError: there is no such library, or it does not measure the device: a part of one (MIG).
    """

    def __init__(self, device: torch.device) -> None:
        import torch

        self._device, self._nvml = device, ctypes.CDLL("libnvidia-ml.so.1")
        found = torch.cuda.get_device_properties(device)
        self._total, self._handle, mode = found.total_memory, ctypes.c_void_p(), ctypes.c_uint()
        self._call("nvmlInit_v2")
        uuid = f"GPU-{found.uuid}".encode()
        self._call("nvmlDeviceGetHandleByUUID", uuid, ctypes.byref(self._handle))
        self._call("nvmlDeviceGetComputeMode", self._handle, ctypes.byref(mode))
        self._can_share = mode.value == 0 or mps_is_running()
        self()

    def __call__(self) -> DeviceUse:
        """The use of the GPU now."""
        import torch

        rates = (ctypes.c_uint * 2)()  # of its multiprocessors, and of its memory's bandwidth
        self._call("nvmlDeviceGetUtilizationRates", self._handle, ctypes.byref(rates))
        held = torch.cuda.max_memory_reserved(self._device) + CONTEXT
        return DeviceUse(float(rates[0]), 100 * held / self._total if self._can_share else None)

    def _call(self, function: str, *args: Any) -> None:
        if code := getattr(self._nvml, function)(*args):
            raise OSError(f"{function} returned {code}")


def nvml_meter(device: torch.device) -> DeviceMeter | None:
    """Measures an NVIDIA GPU; None for other devices, or where its driver measures nothing."""
    try:
        return NvmlMeter(device) if device.type == "cuda" else None
    except (AttributeError, OSError):
        return None
