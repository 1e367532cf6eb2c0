"""Who may read the metrics, and where; the files for Prometheus and node_exporter."""

from __future__ import annotations

import json
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Gauge

from results.metrics.server import MetricsServer, Target, TextFile
from search_spaces.errors import UserError
from search_spaces.spec.tracking import MonitoringSpec

SUBJECT = ["-days", "2", "-nodes", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]


@pytest.fixture
def registry() -> CollectorRegistry:
    made = CollectorRegistry()
    Gauge("tune_x", "x", registry=made).set(3)
    return made


@pytest.fixture
def serve(registry: CollectorRegistry) -> Iterator[Any]:
    servers = []

    def begin(**keys: Any) -> MetricsServer:
        server = MetricsServer(MonitoringSpec(port=0, **keys))
        servers.append(server)
        server.start(registry)
        return server

    yield begin
    for server in servers:
        server.close()


def get(url: str, context: ssl.SSLContext | None = None, **headers: str) -> str:
    request = urllib.request.Request(url, headers=headers)
    with urllib.request.urlopen(request, timeout=10, context=context) as answer:
        return str(answer.read().decode())


def test_serves_metrics_on_loopback(serve: Any) -> None:
    server = serve()
    assert "tune_x 3.0" in get(f"http://127.0.0.1:{server.port}/metrics")
    with pytest.raises(urllib.error.HTTPError, match="404"):
        get(f"http://127.0.0.1:{server.port}/")


def test_a_token_is_asked_for(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("METRICS_TOKEN", "s3cret")
    server = serve(host="0.0.0.0", token="${METRICS_TOKEN}")
    url = f"http://127.0.0.1:{server.port}/metrics"
    assert "tune_x" in get(url, Authorization="Bearer s3cret")
    for wrong in ({}, {"Authorization": "Bearer other"}, {"Authorization": "s3cret"}):
        with pytest.raises(urllib.error.HTTPError, match="401"):
            get(url, **wrong)


def openssl(*args: str, cwd: Path) -> None:
    subprocess.run(["openssl", *args], cwd=cwd, check=True, capture_output=True)


def test_mutual_tls(serve: Any, tmp_path: Path) -> None:
    for name in ("server", "reader", "stranger"):
        made = ["-keyout", f"{name}.key", "-out", f"{name}.pem", "-subj", "/CN=localhost"]
        names = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
        openssl("req", "-x509", *SUBJECT, *made, *names, cwd=tmp_path)
    at = {n: str(tmp_path / n) for n in ("server.pem", "server.key", "reader.pem")}
    server = serve(
        host="0.0.0.0",
        certificate=at["server.pem"],
        key=at["server.key"],
        client_ca=at["reader.pem"],
    )
    url = f"https://127.0.0.1:{server.port}/metrics"

    def context(name: str | None) -> ssl.SSLContext:
        made = ssl.create_default_context(cafile=at["server.pem"])
        if name:
            made.load_cert_chain(tmp_path / f"{name}.pem", tmp_path / f"{name}.key")
        return made

    assert "tune_x" in get(url, context("reader"))
    for name in (None, "stranger"):
        with pytest.raises((OSError, urllib.error.URLError)):
            get(url, context(name))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.7", "node-3"])
def test_beyond_this_machine_without_proof_is_refused(host: str) -> None:
    with pytest.raises(ValueError, match="needs token"):
        MonitoringSpec(port=1, host=host)


def test_a_port_in_use_is_a_line(serve: Any) -> None:
    taken = serve().port
    with pytest.raises(UserError, match=f"monitoring.port: cannot listen at 127.0.0.1:{taken}"):
        MetricsServer(MonitoringSpec(port=taken))


def test_target_is_readable_and_goes_with_the_driver(tmp_path: Path) -> None:
    target = Target(tmp_path / ".monitoring", "llm", "127.0.0.1:9108")
    file = tmp_path / ".monitoring" / "llm.json"
    entry = {"targets": ["127.0.0.1:9108"], "labels": {"sweep": "llm"}}
    assert json.loads(file.read_text()) == [entry]
    assert file.stat().st_mode & 0o777 == 0o644
    target.close()
    assert not list(file.parent.iterdir())


def test_text_file_follows_the_metrics(tmp_path: Path, registry: CollectorRegistry) -> None:
    text = TextFile(tmp_path, "llm", registry, every_s=0.01)
    text.start()
    value = Gauge("tune_y", "y", registry=registry)
    value.set(7)
    file = tmp_path / "tune_llm.prom"
    while "tune_y 7.0" not in file.read_text():
        pass
    assert file.stat().st_mode & 0o777 == 0o644
    text.close()
    assert not list(tmp_path.iterdir())
    with pytest.raises(UserError, match="textfile"):
        TextFile(tmp_path / "none", "llm", registry)
