import pytest
import torch

from trainables.training.throughput import peak_flops


@pytest.mark.parametrize(
    ("name", "peak"),
    [
        ("NVIDIA A100-SXM4-80GB", 312e12),
        ("NVIDIA H100 80GB HBM3", 989e12),
        ("NVIDIA H200", 989e12),
        ("NVIDIA H200 NVL", 835e12),
        ("NVIDIA GH200 480GB", 989e12),
        ("NVIDIA L4", 121e12),
        *((name, None) for name in ("NVIDIA L40", "NVIDIA A10G", "NVIDIA RTX A1000")),
        ("NVIDIA H200 MIG 3g.71gb", None),
    ],
)
def test_peak_is_that_of_the_whole_name(
    name: str, peak: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: name)
    assert peak_flops(torch.device("cuda")) == peak
