"""Object storage that is unreachable, refuses, or fails for a moment."""

import logging
import time
from pathlib import Path

import pytest

from results.storage.object_store import check_object_store, open_object_store
from results.storage.retry import FIRST_PAUSE_S
from search_spaces.errors import UserError
from tests.object_store import BUCKET
from tests.results.tracking.servers import failing_server, free_port

pytestmark = pytest.mark.slow


def test_object_store_explains_errors_in_one_line(server: str, tmp_path: Path) -> None:
    check_object_store(open_object_store(f"s3://{BUCKET}/not/there/yet"))
    check_object_store(open_object_store(tmp_path.as_uri()))
    with pytest.raises(UserError, match="there is no bucket 'nowhere'; create it, or name another"):
        check_object_store(open_object_store("s3://nowhere/x"))
    for wrong in ("bucket/x", "ftp://host/x", "s3://", "s3://bucket/x?nosuch=1"):
        with pytest.raises(UserError, match="write s3://bucket/prefix"):
            open_object_store(wrong)
    unreachable = f"s3://{BUCKET}/x?scheme=http&endpoint_override=127.0.0.1:{free_port()}"
    with pytest.raises(UserError, match=r"^s3://bucket/x: cannot be reached \(.*AWS_ENDPOINT_URL$"):
        check_object_store(open_object_store(unreachable))


def test_object_store_retries_transient_errors(
    server: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    with failing_server() as url, caplog.at_level(logging.WARNING):
        host = url.removeprefix("http://")
        objects = open_object_store(f"s3://{BUCKET}/x?scheme=http&endpoint_override={host}")
        with pytest.raises(OSError, match="AWS Error"):
            objects.read("key")
    assert len(pauses) == 4
    assert all(0.5 <= p / (FIRST_PAUSE_S * 2**n) <= 1.5 for n, p in enumerate(pauses))
    assert caplog.text.count("trying again in") == 4
    pauses.clear()
    with pytest.raises(OSError, match="NO_SUCH_BUCKET"):
        open_object_store("s3://nowhere/x").put("key", b"")
    assert pauses == []  # a permanent error is not retried
