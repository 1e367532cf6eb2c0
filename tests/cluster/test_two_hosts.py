"""Trials whose workers are on two hosts, and the faults of the network between them."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from results.records.trial import read_reports
from tests.chaos.cluster import ENV
from tests.cluster.hosts import LINK, Host, two_hosts
from tests.cluster.sweep import Measure, Run

CUT_S = 25.0


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Host, Host]]:
    with two_hosts(tmp_path_factory.mktemp("hosts")) as made:
        yield made


def test_trial_spans_two_hosts(
    hosts: tuple[Host, Host], tmp_path: Path, record_property: Measure
) -> None:
    Run(hosts[0], tmp_path, "span", steps=3, seconds=0.0).check(record_property, attempts=1)


def test_command_runs_on_both_hosts(hosts: tuple[Host, Host], tmp_path: Path) -> None:
    run = Run(hosts[0], tmp_path, "command", steps=2, seconds=0.0)
    run.end()
    reports = read_reports(run.paths.trial("t0000"))
    assert [(r.step, r.metrics["ranks"]) for r in reports] == [(1, 2), (2, 2)]


def test_hosts_end_with_the_test(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from tests.cluster.hosts import Host;"
        f"host = Host(0, Path({str(tmp_path)!r})); print(host.pid, flush=True); sys.stdin.read()"
    )
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", code], env=ENV, stdin=pipe, stdout=pipe) as test:
        assert test.stdout is not None
        inside = psutil.Process(int(test.stdout.readline()))
        test.kill()
    inside.wait(30)


def test_cut_link_costs_nothing(
    hosts: tuple[Host, Host], tmp_path: Path, record_property: Measure
) -> None:
    run = Run(hosts[0], tmp_path, "cut", steps=30, seconds=0.5)
    run.wait_for("t0000 step 5")
    hosts[1].cut()
    time.sleep(CUT_S)  # the length of the fault
    hosts[1].mend()
    run.check(record_property, attempts=1)


@pytest.mark.parametrize("fault", ["partition", "power_off"])
def test_lost_host_costs_one_interval(
    hosts: tuple[Host, Host], tmp_path: Path, record_property: Measure, fault: str
) -> None:
    first, second = hosts
    run = Run(first, tmp_path, fault, steps=20, seconds=0.5)
    run.wait_for("t0000 step 5")
    second.cut() if fault == "partition" else second.power_off()
    run.wait_for("waits for a machine: it needs 2 CPUs (2 x 1 CPU), but the cluster has 1 CPU")
    if fault == "partition":
        second.power_off()  # what still runs there must not come back
    second.power_on(first)
    second.start_ray()
    run.check(record_property, attempts=2)
    assert "t0000 has its workers after" in run.output
    assert "has been marked dead" in run.paths.ray_messages.read_text()
    assert "raylet" not in run.output


def test_slow_and_lossy_link(
    hosts: tuple[Host, Host], tmp_path: Path, record_property: Measure
) -> None:
    try:
        hosts[1].run(
            "tc", "qdisc", "add", "dev", LINK, "root", "netem", "delay", "50ms", "loss", "2%"
        )
    except AssertionError as e:
        pytest.skip(f"no netem in this kernel: {str(e).splitlines()[-1]}")
    try:
        run = Run(hosts[0], tmp_path, "lossy", steps=10, seconds=0.1)
        run.check(record_property, attempts=1)
    finally:
        hosts[1].run("tc", "qdisc", "del", "dev", LINK, "root")


def test_group_that_cannot_form_names_addresses_and_interface(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ENV, "GLOO_SOCKET_IFNAME", "lo")  # the user's choice stays, and is wrong
    with two_hosts(tmp_path / "hosts") as (first, _):
        output = Run(first, tmp_path, "apart", steps=1, seconds=0.0).end(code=1)
    assert "rank 0 on 192.0.2." in output
    assert "192.0.2.1 (lo)" in output
    assert "192.0.2.2 (lo)" in output
