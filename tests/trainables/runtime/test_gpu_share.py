import os

import pytest
import torch

from trainables.runtime import gpu_share


@pytest.fixture(autouse=True)
def clean(monkeypatch, tmp_path):
    monkeypatch.delenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", raising=False)
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(tmp_path / "mps"))


def percentage():
    return os.environ.get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE")


def test_limit_compute_sets_the_share_if_mps_runs(tmp_path):
    gpu_share.limit_compute(0.25)
    assert percentage() is None
    (tmp_path / "mps").mkdir()
    gpu_share.limit_compute(1)
    assert percentage() is None
    gpu_share.limit_compute(0.25)
    assert percentage() == "25"
    gpu_share.limit_compute(0.5)
    assert percentage() == "25", "what is set already is the user's"


def test_limit_memory_applies_to_shared_devices_only(monkeypatch):
    limits = []
    monkeypatch.setattr(
        torch.cuda, "set_per_process_memory_fraction", lambda *given: limits.append(given)
    )
    device = torch.device("cuda", 1)
    gpu_share.limit_memory(1.0, device)
    gpu_share.limit_memory(0.25, torch.device("cpu"))
    assert limits == []
    gpu_share.limit_memory(0.25, device)
    assert limits == [(0.25, device)]
