"""Random generators and other global state: seeded for a trial, saved, restored after it.

A lane runs trial after trial in one process. A setting that a trial leaves behind would affect the
next one. Each such setting is one line in `SETTINGS`.
"""

from __future__ import annotations

import logging
import os
import random
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing import active_children
from typing import Any

import numpy as np
import torch
from torch.nn.modules import module
from torch.optim import optimizer

from trainables.runtime import compiled_code


@dataclass(frozen=True)
class Setting:
    """A global setting: how to read it, and how to restore it."""

    read: Callable[[], Any]
    write: Callable[[Any], object]


def _attribute(owner: Any, name: str) -> Setting:
    return Setting(partial(getattr, owner, name), partial(setattr, owner, name))


def _mapping(owner: Any) -> Setting:
    def write(before: dict[Any, Any]) -> None:
        owner.clear()
        owner.update(before)

    return Setting(lambda: dict(owner), write)


def _sequence(owner: list[Any]) -> Setting:
    def write(before: list[Any]) -> None:
        owner[:] = before

    return Setting(lambda: list(owner), write)


def _folder() -> str:
    with suppress(FileNotFoundError):  # somebody has removed it
        return os.getcwd()
    return ""


def _default_device(before: torch.device) -> None:
    torch.set_default_device(None if before.type == "cpu" else before)  # cpu: no mode at all


def _autocast(device_type: str) -> Setting:
    return Setting(
        partial(torch.is_autocast_enabled, device_type),
        partial(torch.set_autocast_enabled, device_type),
    )


def _autocast_depth() -> int:
    depth = int(torch.autocast_increment_nesting()) - 1
    torch.autocast_decrement_nesting()
    return depth


def _leave_autocast(before: int) -> None:
    """Exit autocast contexts that a trial entered and never exited.

    The outermost autocast caches casts of weights until its exit; later trials would train on
    them.
    """
    while _autocast_depth() > before:
        torch.autocast_decrement_nesting()
    torch.clear_autocast_cache()


_HOOKS = {
    name: _mapping(value)
    for owner in (module, optimizer)
    for name, value in vars(owner).items()
    if re.fullmatch("_global_.*_hooks", name) and isinstance(value, dict)
}
"""What is registered for all modules and for all optimizers: torch keeps a dictionary of each."""

SETTINGS: dict[str, Setting] = {
    "environment": _mapping(os.environ),
    "working directory": Setting(_folder, os.chdir),
    "sys.path": _sequence(sys.path),
    "recursion limit": Setting(sys.getrecursionlimit, sys.setrecursionlimit),
    "log level": Setting(lambda: logging.root.level, logging.root.setLevel),
    "log handlers": _sequence(logging.root.handlers),
    "logging disabled": _attribute(logging.root.manager, "disable"),
    "numpy errors": Setting(np.geterr, lambda before: np.seterr(**before)),
    # Sums depend on the number of threads in the last bit; it belongs to the launcher.
    "threads": Setting(torch.get_num_threads, torch.set_num_threads),
    "dtype": Setting(torch.get_default_dtype, torch.set_default_dtype),
    "device": Setting(torch.get_default_device, _default_device),
    "gradients": Setting(torch.is_grad_enabled, torch.set_grad_enabled),
    "deterministic algorithms": Setting(
        lambda: (
            torch.are_deterministic_algorithms_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
        ),
        lambda before: torch.use_deterministic_algorithms(before[0], warn_only=before[1]),
    ),
    "anomaly detection": Setting(
        lambda: (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()),
        lambda before: torch.set_anomaly_enabled(*before),
    ),
    "autocast depth": Setting(_autocast_depth, _leave_autocast),
    "autocast on CPU": _autocast("cpu"),
    "autocast on CUDA": _autocast("cuda"),
    "float32 products": Setting(
        torch.get_float32_matmul_precision, torch.set_float32_matmul_precision
    ),
    "cudnn": _attribute(torch.backends.cudnn, "enabled"),
    "cudnn.benchmark": _attribute(torch.backends.cudnn, "benchmark"),
    "cudnn.deterministic": _attribute(torch.backends.cudnn, "deterministic"),
    "flash attention": Setting(
        torch.backends.cuda.flash_sdp_enabled, torch.backends.cuda.enable_flash_sdp
    ),
    "memory-efficient attention": Setting(
        torch.backends.cuda.mem_efficient_sdp_enabled, torch.backends.cuda.enable_mem_efficient_sdp
    ),
    "plain attention": Setting(
        torch.backends.cuda.math_sdp_enabled, torch.backends.cuda.enable_math_sdp
    ),
    "cudnn attention": Setting(
        torch.backends.cuda.cudnn_sdp_enabled, torch.backends.cuda.enable_cudnn_sdp
    ),
    **_HOOKS,
}


@contextmanager
def restored_global_state() -> Iterator[None]:
    """Restore every setting that the block changes, and end the processes that it leaves behind.

    Unchanged settings are not set again, because that has a cost for some of them.
    """
    before = {name: setting.read() for name, setting in SETTINGS.items()}
    children = set(active_children())
    with warnings.catch_warnings():
        try:
            yield
        finally:
            for name, value in before.items():
                if SETTINGS[name].read() != value:
                    SETTINGS[name].write(value)
            _end(set(active_children()) - children)
            compiled_code.end_trial()


def _end(left: set[Any]) -> None:
    for process in left:
        process.kill()
        process.join()


def rng_state(device: torch.device) -> dict[str, Any]:
    """State of every random generator of this process, as a tree that `save_tree` writes.

    Args:
        device: whose generator to include; a CPU device adds none.
    """
    name, keys, *rest = np.random.get_state(legacy=True)
    state = {
        "python": random.getstate(),
        "numpy": (str(name), torch.from_numpy(np.array(keys)), *rest),
        "torch": torch.get_rng_state(),
    }
    if device.type == "cuda":
        state["cuda"] = torch.cuda.get_rng_state(device)
    if device.type == "mps":
        state["mps"] = torch.mps.get_rng_state()
    return state


def set_rng_state(state: dict[str, Any], device: torch.device) -> None:
    """Restore the state that `rng_state` returned."""
    random.setstate(state["python"])
    name, keys, *rest = state["numpy"]
    np.random.set_state((name, keys.numpy(), *rest))
    torch.set_rng_state(state["torch"])
    if device.type == "cuda" and "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"], device)
    if device.type == "mps" and "mps" in state:
        torch.mps.set_rng_state(state["mps"])


def seed_everything(seed: int, rank: int = 0) -> None:
    """Seed Python's, numpy's and torch's generators (CUDA's too), differently on each rank."""
    python, numpy, torch_seed = np.random.SeedSequence([seed, rank]).generate_state(3)
    random.seed(int(python))
    np.random.seed(int(numpy))
    torch.manual_seed(int(torch_seed))


@contextmanager
def isolated_rng(seed: int, rank: int, device: torch.device) -> Iterator[None]:
    """Isolate a trial from the others that run in the same process.

    Seeds all generators on entry. On exit, restores the generators and all other global state
    (see `trainables.runtime.seeding`), so that no trial affects the next one.
    """
    before = rng_state(device)
    with restored_global_state():
        seed_everything(seed, rank)
        try:
            yield
        finally:
            with suppress(RuntimeError):  # a device that failed must not replace the trial's error
                set_rng_state(before, device)
