import pytest
import torch

from trainables.launch.run_trial import mps_instead_of_cpu


@pytest.mark.parametrize(
    ("has_mps", "device", "expected"),
    [(True, "cpu", "mps"), (False, "cpu", "cpu"), (True, "cuda", "cuda")],
)
def test_apples_gpu_is_used_where_there_is_no_other(
    has_mps: bool, device: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: has_mps)
    assert mps_instead_of_cpu(torch.device(device)).type == expected
