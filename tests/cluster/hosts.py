"""Two hosts on one machine: each has its own network, processes, name and `/etc/hosts`.

A host is a set of Linux namespaces below one process. The kernel ends all processes of a host and
removes its network when that process ends, and it ends with the test, however the test ends.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from tests.chaos.cluster import ENV

ADDRESSES = ("192.0.2.1", "192.0.2.2")
"""Addresses for documentation (RFC 5737): no machine has them."""
GCS = f"{ADDRESSES[0]}:6379"
LINK = "link0"
_INIT = """
set -e
hostname "$1"
ip link set lo up
mount --bind "$2/hosts" /etc/hosts
mkdir -p /tmp/ray && mount --bind "$2/ray" /tmp/ray
echo ready; exec >&-
while :; do sleep 1; done
"""


class Host:
    """A host whose name means its loopback address, as on Debian.

    Args:
        number: 0 or 1, which decides its name and address.
        folder: for its own files.
        certificates: of the hosts, made by `tune certs`; None: they talk without TLS.
    """

    def __init__(self, number: int, folder: Path, certificates: Path | None = None) -> None:
        self.name, self.address = f"host{number}", ADDRESSES[number]
        self.env = ENV | (tls(certificates, self.address) if certificates else {})
        self._folder = folder / self.name
        self._boot()

    def _boot(self) -> None:
        (self._folder / "ray").mkdir(parents=True, exist_ok=True)
        (self._folder / "hosts").write_text(f"127.0.0.1 localhost {self.name}\n")
        spaces = ("--net", "--pid", "--mount", "--uts", "--mount-proc")
        alone = ["setpriv", "--pdeathsig", "KILL", "unshare", *spaces, "--fork", "--kill-child"]
        self._outer = subprocess.Popen(
            [*alone, "sh", "-c", _INIT, "init", self.name, str(self._folder)],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._outer.stdout is not None
        with self._outer.stdout as said:
            assert said.readline() == "ready\n"
        self.pid = psutil.Process(self._outer.pid).children()[0].pid

    def power_off(self) -> None:
        """End every process of the host at once."""
        self._outer.kill()
        self._outer.wait()
        psutil.wait_procs([psutil.Process(self.pid)] if psutil.pid_exists(self.pid) else [])

    def power_on(self, other: Host) -> None:
        """Start it again, with nothing running, connected to the other host."""
        self._boot()
        connect(other, self)

    def inside(self, *command: str) -> list[str]:
        """The command as run on this host."""
        enter = ["nsenter", "--target", str(self.pid), "--net", "--pid", "--mount", "--uts"]
        return [*enter, f"--wd={self._folder.parent}", *command]

    def run(self, *command: str) -> None:
        """Run a command on this host."""
        done = subprocess.run(
            self.inside(*command), capture_output=True, text=True, env=self.env, timeout=120
        )
        assert done.returncode == 0, f"{command}: {done.stdout}\n{done.stderr}"

    def set_address(self) -> None:
        """Give the link its address."""
        self.run("ip", "address", "add", f"{self.address}/24", "dev", LINK)
        self.run("ip", "link", "set", LINK, "up")

    def start_ray(self) -> None:
        """Start this host's Ray node, with one CPU; the first host has the head."""
        ray = [str(Path(sys.executable).with_name("ray")), "start", "--num-cpus=1"]
        head = ["--head", "--port=6379", "--include-dashboard=false"]
        role = head if self.address == ADDRESSES[0] else [f"--address={GCS}"]
        self.run(*ray, *role, f"--node-ip-address={self.address}", "--disable-usage-stats")

    def cut(self) -> None:
        """Take the link down."""
        self.run("ip", "link", "set", LINK, "down")

    def mend(self) -> None:
        """Take the link up again."""
        self.run("ip", "link", "set", LINK, "up")


def tls(certificates: Path, address: str) -> dict[str, str]:
    """The environment of a host with its certificate."""
    own = certificates / address
    return {
        "RAY_USE_TLS": "1",
        "RAY_TLS_CA_CERT": str(certificates / "ca.crt"),
        "RAY_TLS_SERVER_CERT": str(own / "tls.crt"),
        "RAY_TLS_SERVER_KEY": str(own / "tls.key"),
    }


def connect(first: Host, second: Host) -> None:
    """Connect the second host to a port of the first."""
    # Not `inside`: only a process outside sees the process id of the second host.
    port = ["nsenter", "--target", str(first.pid), "--net", "ip", "link"]
    subprocess.run([*port, "delete", "port0"], capture_output=True)  # of a host that was lost
    peer = ["peer", "name", LINK, "netns", str(second.pid)]
    subprocess.run([*port, "add", "port0", "type", "veth", *peer], check=True)
    subprocess.run([*port, "set", "port0", "master", LINK, "up"], check=True)
    second.set_address()


@contextmanager
def two_hosts(folder: Path, certificates: Path | None = None) -> Iterator[tuple[Host, Host]]:
    """Two connected hosts, each with a Ray node of one cluster, for the duration of the block."""
    hosts = [Host(number, folder, certificates) for number in range(2)]
    try:
        # A bridge: unlike the end of a link, it stays when the other host is gone.
        hosts[0].run("ip", "link", "add", LINK, "type", "bridge")
        hosts[0].set_address()
        connect(*hosts)
        for host in hosts:
            host.start_ray()
        yield hosts[0], hosts[1]
    finally:
        for host in hosts:
            host.power_off()


def why_not() -> str | None:
    """Why this machine cannot have such hosts; None if it can."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "hosts need root on Linux"
    probe = "ip link add probe0 type veth peer name probe1"
    tried = subprocess.run(
        ["unshare", "--net", "--pid", "--mount", "--uts", "--fork", "sh", "-c", probe],
        capture_output=True,
        text=True,
    )
    return None if tried.returncode == 0 else f"no namespaces here: {tried.stderr.strip()}"
