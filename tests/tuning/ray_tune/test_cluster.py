"""Which Ray clusters are joined without a token."""

import socket
from pathlib import Path

import pytest

from search_spaces.errors import UserError
from tuning.controller.ray_tune.cluster import check_cluster_auth


@pytest.fixture(autouse=True)
def no_token(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "RAY_AUTH_MODE", "RAY_ADDRESS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.mark.parametrize(
    "address",
    [None, "auto", "127.0.0.1:6379", "ray://localhost:10001", "[::1]:6379", socket.gethostname()],
)
def test_cluster_on_this_machine_needs_no_token(address: str | None) -> None:
    check_cluster_auth(address, insecure=False)


@pytest.mark.parametrize("address", ["192.0.2.7:6379", "ray://head.example:10001", "0.0.0.0:6379"])
def test_cluster_on_another_machine_needs_a_token(
    address: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match="with a token only"):
        check_cluster_auth(address, insecure=False)
    check_cluster_auth(address, insecure=True)
    monkeypatch.setenv("RAY_ADDRESS", address)
    with pytest.raises(UserError, match="--insecure"):
        check_cluster_auth(None, insecure=False)
    with monkeypatch.context() as patch:
        patch.setenv("RAY_AUTH_TOKEN", "0123456789abcdef")
        check_cluster_auth(address, insecure=False)
        patch.setenv("RAY_AUTH_MODE", "disabled")
        with pytest.raises(UserError, match="set RAY_AUTH_TOKEN"):
            check_cluster_auth(address, insecure=False)
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray" / "auth_token").write_text("0123456789abcdef")
    check_cluster_auth(address, insecure=False)
