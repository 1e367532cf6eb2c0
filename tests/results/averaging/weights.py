"""Small files of weights."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

FLOATS = ("float64", "float32", "float16", "bfloat16")
GOOD = {"w": np.array([1.0, 2.0], np.float32), "n": np.array([3])}


def save(path: Path, values: NDArray[np.float64], dtype: str) -> Path:
    """Write one tensor 'w'; torch writes bfloat16 and rounds independently of our code."""
    if dtype != "bfloat16":
        save_file({"w": values.astype(dtype)}, path)
        return path
    import torch
    from safetensors.torch import save_file as save_torch

    save_torch({"w": torch.from_numpy(values).to(torch.bfloat16)}, path)
    return path


def raw(path: Path) -> bytes:
    """The bytes of tensor 'w'."""
    data = path.read_bytes()
    return data[8 + int.from_bytes(data[:8], "little") :]
