"""What is recorded of an attempt's environment."""

from __future__ import annotations

import pytest
import torch

from trainables.runtime.provenance import current_environment


def test_settings_of_nccl_are_recorded_without_the_interface(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NCCL_ALGO", "Ring")
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "=lo")  # each worker of Ray gets its own
    recorded = current_environment({}, torch.device("cpu"), 1).hardware
    assert {n: v for n, v in recorded.items() if n.startswith("NCCL")} == {"NCCL_ALGO": "Ring"}
