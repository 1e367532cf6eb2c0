"""Arrays of prepared data as tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch


def to_device(rows: npt.NDArray[Any], device: torch.device) -> torch.Tensor:
    """Numbers on a device, int64, or flags, bool; the copy to a GPU does not wait for it."""
    tensor = torch.from_numpy(rows if rows.dtype == np.bool_ else rows.astype(np.int64))
    if device.type == "cuda":
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)
