"""A cluster whose hosts have certificates of `tune certs`: others cannot join it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.cluster import ENV
from tests.cluster.hosts import ADDRESSES, GCS, Host, tls, two_hosts
from tests.cluster.sweep import LONGEST_S, SWEEP, Measure, Run

TUNE = (sys.executable, "-m", "tuning")


def certificates(folder: Path) -> Path:
    done = subprocess.run([*TUNE, "certs", str(folder), *ADDRESSES], env=ENV, timeout=LONGEST_S)
    assert done.returncode == 0
    return folder


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Host, Host]]:
    folder = tmp_path_factory.mktemp("hosts")
    with two_hosts(folder, certificates(folder / "certificates")) as made:
        yield made


def test_trial_spans_two_hosts(
    hosts: tuple[Host, Host], tmp_path: Path, record_property: Measure
) -> None:
    Run(hosts[0], tmp_path, "span", steps=3, seconds=0.0).check(record_property, attempts=1)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ("none", "the cluster uses TLS; set RAY_USE_TLS=1"),
        ("of another authority", "no connection with TLS (unable to get local issuer certificate)"),
    ],
)
def test_host_without_a_certificate_of_the_cluster_is_refused(
    hosts: tuple[Host, Host], tmp_path: Path, given: str, reason: str
) -> None:
    other = tls(certificates(tmp_path / "other"), ADDRESSES[1]) if given != "none" else {}
    file = tmp_path / "sweep.yaml"
    file.write_text(SWEEP.format(name="refused", steps=1, seconds=0.0))
    done = subprocess.run(
        hosts[1].inside(*TUNE, "run", str(file), "--address", GCS, "--storage", str(tmp_path)),
        env=ENV | other,
        capture_output=True,
        text=True,
        timeout=LONGEST_S,
    )
    assert done.returncode == 2, f"{done.stdout}\n{done.stderr}"
    assert reason in done.stderr
    assert not (tmp_path / "refused").exists()
