import os
from pathlib import Path

import pytest
import torch

from trainables.launch.run_trial import mps_instead_of_cpu, output_to


@pytest.mark.parametrize(
    ("has_mps", "device", "expected"),
    [(True, "cpu", "mps"), (False, "cpu", "cpu"), (True, "cuda", "cuda")],
)
def test_apples_gpu_is_used_where_there_is_no_other(
    has_mps: bool, device: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: has_mps)
    assert mps_instead_of_cpu(torch.device(device)).type == expected


def test_log_that_cannot_be_opened_leaves_no_file_open(tmp_path: Path) -> None:
    counts = []
    for _ in range(3):
        with pytest.raises(IsADirectoryError), output_to(tmp_path):
            pass
        counts.append(len(os.listdir("/proc/self/fd")))
    assert counts == counts[:1] * 3
