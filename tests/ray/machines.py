"""A Ray cluster of several simulated machines, which join and leave while a test runs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tests.chaos.cluster import ENV

# Each machine has an address of its own: Ray's node resources are named by it.
_HOLD = """
import sys
from itertools import count
from ray.cluster_utils import Cluster
head = {"num_cpus": 1, "include_dashboard": False}
cluster, more, number = Cluster(initialize_head=True, head_node_args=head), [], count(2)
print(cluster.address, flush=True)
for line in sys.stdin:
    if line.startswith("add"):
        variables = dict(word.split("=", 1) for word in line.split()[1:])
        address = f"127.0.0.{next(number)}"
        node = cluster.add_node(num_cpus=1, node_ip_address=address, env_vars=variables)
        more.append(node)
        cluster.wait_for_nodes(600)
    else:
        cluster.remove_node(more.pop(), allow_graceful=line.strip() == "remove")
    print(line, end="", flush=True)
cluster.shutdown()
"""


class Machines:
    """Machines of one CPU each. The first is the head; the driver runs there."""

    def __init__(self, holder: subprocess.Popen[str]) -> None:
        self._holder, self._there = holder, 1
        self.address = self._answer()

    def require(self, count: int) -> None:
        """Add machines until there are at least `count`."""
        while self._there < count:
            self.add()

    def add(self, **env: str) -> None:
        """Add a machine, whose processes have these variables too."""
        self._order(" ".join(["add", *(f"{k}={v}" for k, v in env.items())]), 1)

    def remove(self) -> None:
        """Remove the newest machine with all its processes."""
        self._order("remove", -1)

    def kill(self) -> None:
        """Kill the newest machine. Ray notices after a while."""
        self._order("kill", -1)

    def _order(self, what: str, more: int) -> None:
        assert self._holder.stdin is not None
        print(what, file=self._holder.stdin, flush=True)
        assert self._answer() == what
        self._there += more

    def _answer(self) -> str:
        assert self._holder.stdout is not None
        return self._holder.stdout.readline().strip()


@contextmanager
def machines() -> Iterator[Machines]:
    """A cluster of one machine for the duration of the block."""
    with subprocess.Popen(
        [sys.executable, "-c", _HOLD],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=ENV,
    ) as holder:
        yield Machines(holder)
        assert holder.stdin is not None
        holder.stdin.close()
        holder.wait(600)
