"""Lets a trial leave a machine that is taken away, while its processes still run.

Ray marks a machine as draining when `ray start --block` gets SIGTERM there, as in a Kubernetes pod
that is evicted, when an autoscaler gives it up, and on `ray drain-node`. From then on it places
nothing there. A notice of a cloud is passed on to Ray, so that all lanes learn of it in one way.
"""

from __future__ import annotations

import threading
import time
from typing import Any

from search_spaces.spec.failure import Notices
from trainables.runtime.preemption import GRACE_S, cloud_here, read_notice, request_preemption

_INTERVAL_S = 2.0


def watch_node(notices: Notices) -> None:
    """From now on, ask for preemption of this process once its machine is taken away.

    Args:
        notices: the cloud whose notices count; auto: that of the machine, if any.
    """
    cloud = cloud_here() if notices == "auto" else None if notices == "none" else notices
    threading.Thread(target=_watch, args=(cloud,), name="node-notices", daemon=True).start()


def draining_machines() -> set[str]:
    """The ids of the machines that Ray takes nothing new to, because they are taken away."""
    from ray._private.state import state

    return set(state.get_draining_nodes())


def _watch(cloud: str | None) -> None:
    import ray

    node = ray.get_runtime_context().get_node_id()
    while node not in draining_machines():
        if cloud is not None and (notice := _notice_of(cloud)) is not None:
            request_preemption(f"its machine is taken away ({notice})")
            return _drain(node, notice, GRACE_S[cloud])
        time.sleep(_INTERVAL_S)
    request_preemption("its machine is taken away (Ray drains it)")


def _notice_of(cloud: str) -> str | None:
    try:
        return read_notice(cloud)
    except (OSError, ValueError):  # SIGTERM and a lost machine remain
        return None


def _drain(node: str, why: str, seconds: float) -> None:
    """Let Ray place nothing more on a machine."""
    import ray
    from ray import _raylet
    from ray.core.generated import autoscaler_pb2

    messages: Any = autoscaler_pb2  # generated, without types
    raylet: Any = _raylet
    preemption = messages.DrainNodeReason.DRAIN_NODE_REASON_PREEMPTION
    until = int((time.time() + seconds) * 1000)
    cluster = raylet.GcsClient(address=ray.get_runtime_context().gcs_address)
    cluster.drain_node(node, preemption, why, until)
