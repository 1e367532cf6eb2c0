"""Azure blob storage, against Azurite where it is installed (npm install -g azurite)."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from results.storage.object_store import ObjectStore, check_object_store, open_object_store
from search_spaces.errors import UserError
from tests.results.tracking.servers import free_port

# Azurite's own account, which its documentation names.
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
ADDRESS = f"abfs://box@{ACCOUNT}.dfs.core.windows.net/mirrors"
STARTS_S = 60.0


@pytest.fixture
def objects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    program = shutil.which("azurite-blob")
    if program is None:
        pytest.skip("azurite-blob is not installed")
    port = free_port()
    options = ["--silent", "--disableTelemetry", "--skipApiVersionCheck", "--blobPort", str(port)]
    monkeypatch.setenv("AZURE_STORAGE_ENDPOINT", f"http://127.0.0.1:{port}")
    monkeypatch.setenv("AZURE_STORAGE_KEY", KEY)
    with subprocess.Popen([program, *options, "--location", str(tmp_path)]) as server:
        try:
            yield _created(open_object_store(ADDRESS))
        finally:
            server.terminate()


def _created(objects: ObjectStore) -> ObjectStore:
    """The store, once its server answers."""
    deadline = time.monotonic() + STARTS_S
    while True:
        try:
            objects.filesystem.create_dir("box")
            return objects
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.2)


@pytest.mark.slow
def test_azure_keeps_objects_like_the_other_stores(objects: ObjectStore, tmp_path: Path) -> None:
    check_object_store(objects)
    objects.put("llm/a", b"one")
    objects.put("llm/b/c", b"three")
    assert objects.sizes("llm") == {"a": 3, "b/c": 5}
    assert objects.read("llm/none") is None
    objects.rename("llm/a", "llm/d")
    objects.fetch("llm/d", tmp_path / "d")
    assert (tmp_path / "d").read_bytes() == b"one"
    assert (objects.modified_at("llm/d") or 0) > 0
    objects.remove("llm/b", recursive=True)
    objects.remove("llm/none")
    assert objects.sizes("llm") == {"d": 3}


@pytest.mark.parametrize(
    "address", ["abfs://box", "abfs://box:key@account.dfs.core.windows.net/x", "abfs:///box/x"]
)
def test_other_addresses_are_refused(address: str) -> None:
    with pytest.raises(UserError, match="abfs://container@account"):
        open_object_store(address)
