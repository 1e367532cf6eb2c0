"""A Ray cluster of several machines on this one: they come and go while a test runs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tests.ray.conftest import ENV

_HOLD = """
import sys
from ray.cluster_utils import Cluster
cluster, more, added = Cluster(initialize_head=True, head_node_args={"num_cpus": 1}), [], 1
print(cluster.address, flush=True)
for line in sys.stdin:
    if line.strip() == "add":
        added += 1
        more.append(cluster.add_node(num_cpus=1, node_ip_address=f"127.0.0.{added}"))
        cluster.wait_for_nodes(60)
    else:
        cluster.remove_node(more.pop(), allow_graceful=line.strip() == "remove")
    print(line, end="", flush=True)
cluster.shutdown()
"""


class Machines:
    """Machines of one CPU each; the first is the head, on which the driver is."""

    def __init__(self, holder: subprocess.Popen[str]) -> None:
        self._holder = holder
        self.address = self._answer()

    def add(self) -> None:
        """Another one joins."""
        self._order("add")

    def remove(self) -> None:
        """The newest leaves, with all its processes."""
        self._order("remove")

    def kill(self) -> None:
        """The newest dies without a word; it takes Ray a while to notice."""
        self._order("kill")

    def _order(self, what: str) -> None:
        print(what, file=self._holder.stdin, flush=True)
        assert self._answer() == what

    def _answer(self) -> str:
        return self._holder.stdout.readline().strip()


@contextmanager
def machines() -> Iterator[Machines]:
    """A cluster of one machine, which ends with the block."""
    with subprocess.Popen(
        [sys.executable, "-c", _HOLD],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=ENV,
    ) as holder:
        yield Machines(holder)
        holder.stdin.close()
        holder.wait(60)
