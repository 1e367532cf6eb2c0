import os
from types import SimpleNamespace

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
    device, has = torch.device("cuda", 1), SimpleNamespace(total_memory=80 * 2**30)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: has)
    gpu_share.limit_memory(1.0, device)
    gpu_share.limit_memory(0.25, torch.device("cpu"))
    assert limits == []
    gpu_share.limit_memory(0.25, device)
    assert limits == [(gpu_share.tensors_share(0.25, has.total_memory), device)]


@pytest.mark.parametrize("gib", [8, 24, 80])
@pytest.mark.parametrize("share", [0.02, 0.1, 0.25, 0.5])
def test_share_of_tensors_leaves_space_for_the_rest_of_the_process(share, gib):
    tensors = gpu_share.tensors_share(share, gib * 2**30) * gib
    assert share * gib / 2 <= tensors < share * gib
    if share * gib > 3:
        assert share * gib - tensors == pytest.approx(1.3)
