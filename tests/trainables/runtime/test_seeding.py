from __future__ import annotations

import logging
import multiprocessing
import os
import random
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook
from torch.optim.optimizer import register_optimizer_step_pre_hook

from trainables.checkpointing.training_state import load_tree, save_tree
from trainables.runtime.seeding import (
    SETTINGS,
    isolated_rng,
    restored_global_state,
    rng_state,
    seed_everything,
    set_rng_state,
)

CPU = torch.device("cpu")


def draw() -> tuple[float, float, float]:
    return random.random(), float(np.random.rand()), float(torch.rand(()))


def test_rng_state_round_trip(tmp_path: Path) -> None:
    with isolated_rng(3, 0, CPU):
        draw()
        save_tree(tmp_path, "rng", rng_state(CPU))
        expected = draw()
        draw()
        set_rng_state(load_tree(tmp_path, "rng"), CPU)
        assert draw() == expected


def test_seed_everything_differs_by_seed_and_rank() -> None:
    drawn = []
    with isolated_rng(0, 0, CPU):
        for seed, rank in [(1, 0), (1, 0), (1, 1), (2, 0)]:
            seed_everything(seed, rank)
            drawn.append(draw())
    assert drawn[0] == drawn[1]
    assert len(set(drawn)) == 3


def test_isolated_rng_restores_generators() -> None:
    state = rng_state(CPU)
    with isolated_rng(5, 0, CPU):
        draw()
    after = rng_state(CPU)
    assert after["python"] == state["python"]
    assert torch.equal(after["numpy"][1], state["numpy"][1])
    assert torch.equal(after["torch"], state["torch"])


CHANGES = {
    "environment": lambda: os.environ.update(LEFT_BEHIND="1"),
    "working directory": lambda: os.chdir("/"),
    "sys.path": lambda: sys.path.insert(0, "/nowhere"),
    "recursion limit": lambda: sys.setrecursionlimit(5000),
    "log level": lambda: logging.root.setLevel(logging.CRITICAL),
    "log handlers": lambda: logging.root.addHandler(logging.NullHandler()),
    "logging disabled": lambda: logging.disable(),
    "numpy errors": lambda: np.seterr(all="raise"),
    "threads": lambda: torch.set_num_threads(torch.get_num_threads() + 1),
    "dtype": lambda: torch.set_default_dtype(torch.float64),
    "device": lambda: torch.set_default_device("meta"),
    "gradients": lambda: torch.set_grad_enabled(False),
    "deterministic algorithms": lambda: torch.use_deterministic_algorithms(True),
    "anomaly detection": lambda: torch.autograd.set_detect_anomaly(True),
    "autocast depth": lambda: torch.autocast("cpu").__enter__(),
    "autocast on CPU": lambda: torch.autocast("cpu").__enter__(),
    "autocast on CUDA": lambda: torch.set_autocast_enabled("cuda", True),
    "float32 products": lambda: torch.set_float32_matmul_precision("medium"),
    "cudnn": lambda: setattr(torch.backends.cudnn, "enabled", False),
    "cudnn.benchmark": lambda: setattr(torch.backends.cudnn, "benchmark", True),
    "cudnn.deterministic": lambda: setattr(torch.backends.cudnn, "deterministic", True),
    "flash attention": lambda: torch.backends.cuda.enable_flash_sdp(False),
    "memory-efficient attention": lambda: torch.backends.cuda.enable_mem_efficient_sdp(False),
    "plain attention": lambda: torch.backends.cuda.enable_math_sdp(False),
    "cudnn attention": lambda: torch.backends.cuda.enable_cudnn_sdp(False),
    "_global_forward_hooks": lambda: register_module_forward_hook(lambda *_: None),
    "_global_optimizer_pre_hooks": lambda: register_optimizer_step_pre_hook(lambda *_: None),
}


@pytest.mark.parametrize("name", CHANGES)
def test_each_setting_is_restored(name):
    setting = SETTINGS[name]
    before = setting.read()
    with isolated_rng(0, 0, torch.device("cpu")):
        CHANGES[name]()
        assert setting.read() != before, "the change is one"
    assert setting.read() == before


def change_everything_and_fail():
    for change in CHANGES.values():
        change()
    raise ValueError("the trial")


def test_all_settings_are_restored_after_a_failure():
    before = {name: s.read() for name, s in SETTINGS.items()}
    with pytest.raises(ValueError, match="the trial"), isolated_rng(0, 0, torch.device("cpu")):
        change_everything_and_fail()
    assert {name: s.read() for name, s in SETTINGS.items()} == before
    assert nn.Linear(2, 2)(torch.ones(1, 2)).requires_grad


def test_settings_are_restored_after_a_trial_that_removed_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with restored_global_state():
        os.environ["LEFT_BY_A_TRIAL"] = "1"
        (tmp_path / "work").mkdir()
        os.chdir("work")
        os.rmdir(tmp_path / "work")
    assert Path.cwd() == tmp_path
    assert "LEFT_BY_A_TRIAL" not in os.environ


def test_autocast_cache_is_cleared_after_a_trial():
    with isolated_rng(0, 0, torch.device("cpu")):
        torch.autocast("cpu").__enter__()
    model = nn.Linear(2, 2, bias=False)
    products = []
    for value in (1.0, 2.0):
        nn.init.constant_(model.weight, value)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            products.append(model(torch.ones(1, 2))[0, 0].item())
    assert products == [2.0, 4.0]


def test_warning_filters_are_restored():
    filters = list(warnings.filters)
    with restored_global_state():
        warnings.simplefilter("ignore")
    assert warnings.filters == filters


def test_processes_left_behind_are_killed():
    with restored_global_state():
        left = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,))
        left.start()
    assert left.exitcode == -9
