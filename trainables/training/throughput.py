"""Arithmetic and memory of a GPU that a training loop uses."""

from __future__ import annotations

import re

import torch

_PEAK = {
    "H100 80GB HBM3": 989e12,
    "H100 PCIe": 756e12,
    "H100 NVL": 835e12,
    "H200 NVL": 835e12,
    "H200": 989e12,
    "GH200": 989e12,
    "B200": 2250e12,
    "A100": 312e12,
    "A10": 125e12,
    "L40S": 362e12,
    "L4": 121e12,
}
"""Dense bfloat16 products with float32 sums, FLOP/s, by words of the device's name (NVIDIA's data
sheets); the first match counts."""


def peak_flops(device: torch.device) -> float | None:
    """FLOP/s of the device in bfloat16 by its data sheet; None if unknown, as of a part of one."""
    if device.type != "cuda":
        return None
    name = torch.cuda.get_device_name(device)
    if re.search(r"\bMIG\b", name):
        return None
    return next((peak for part, peak in _PEAK.items() if re.search(rf"\b{part}\b", name)), None)


def start_memory_peak(device: torch.device) -> None:
    """Forget the largest use of the device's memory so far."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def memory_peak(device: torch.device) -> float:
    """Largest memory of tensors on a CUDA device since `start_memory_peak`, GiB."""
    return float(torch.cuda.max_memory_allocated(device)) / 2**30
