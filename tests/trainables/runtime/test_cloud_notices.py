"""What clouds say of a machine that they take away, read from servers like theirs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.metadata_server import MetadataServer, metadata_server
from trainables.runtime.preemption import GRACE_S, cloud_here, read_notice


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[MetadataServer]:
    with metadata_server() as made:
        monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", f"{made.url}/")
        monkeypatch.setenv("GCE_METADATA_HOST", made.url.removeprefix("http://"))
        monkeypatch.setenv("AZURE_POD_IDENTITY_AUTHORITY_HOST", made.url)
        monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")  # not asked
        yield made


@pytest.mark.parametrize(
    ("cloud", "said"),
    [
        ("aws", "AWS: terminate at 2026-11-24T12:00:00Z"),
        ("gcp", "Google: preempted"),
        ("azure", "Azure: Preempt not before soon"),
    ],
)
def test_notice_is_read_once_it_is_there(server: MetadataServer, cloud: str, said: str) -> None:
    assert read_notice(cloud) is None
    server.is_over = True
    assert read_notice(cloud) == said


@pytest.mark.parametrize("cloud", GRACE_S)
def test_server_that_cannot_be_reached_is_an_error(
    monkeypatch: pytest.MonkeyPatch, cloud: str
) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv("GCE_METADATA_HOST", "127.0.0.1:1")
    monkeypatch.setenv("AZURE_POD_IDENTITY_AUTHORITY_HOST", "http://127.0.0.1:1")
    with pytest.raises(OSError, match="refused"):
        read_notice(cloud)


def test_cloud_of_a_machine_is_told_by_its_firmware(tmp_path: Path) -> None:
    assert cloud_here(tmp_path) is None
    (tmp_path / "sys_vendor").write_text("QEMU\n")
    assert cloud_here(tmp_path) is None
    (tmp_path / "sys_vendor").write_text("Amazon EC2\n")
    assert cloud_here(tmp_path) == "aws"
