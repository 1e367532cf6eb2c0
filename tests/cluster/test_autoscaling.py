"""A sweep on a cluster that has no machine for it yet: Ray's own autoscaler starts them.

Its machines are Ray's nodes for tests: processes of one host.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from results.paths import SweepPaths
from results.records.trial import read_trials
from tests.cluster.hosts import ADDRESSES, GCS, LINK, Host
from tests.cluster.sweep import LONGEST_S

MACHINES = 2
SWEEP = """
name: grows
trainable: tests.cluster.paced:Paced
metric: loss
space: {steps: {grid_search: [3, 4]}}
fixed: {seconds: 0.5}
scheduler: {name: none}
tracking: {name: none}
failure: {start_timeout: 3m}
"""


def config() -> dict[str, object]:
    """For Ray's autoscaler without a cloud, with machines of one CPU."""
    worker = {"resources": {"CPU": 1}, "node_config": {}, "min_workers": 0}
    head = {"resources": {"CPU": 0}, "node_config": {}, "max_workers": 0}
    commands = ("initialization", "setup", "head_setup", "worker_setup")
    starts = ("head_start_ray", "worker_start_ray")
    return {
        "cluster_name": "grows",
        "max_workers": MACHINES,
        "provider": {"type": "fake_multinode"},
        "head_node_type": "ray.head.default",
        "available_node_types": {
            "worker": worker | {"max_workers": MACHINES},
            "ray.head.default": head,
        },
        "upscaling_speed": 1,
        "idle_timeout_minutes": 1,
        "auth": {},
        "docker": {},
        "file_mounts": {},
        "cluster_synced_files": [],
        "file_mounts_sync_continuously": False,
        "rsync_exclude": [],
        "rsync_filter": [],
        **{f"{name}_commands": [] for name in (*commands, *starts)},
    }


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    made = Host(0, tmp_path)
    made.env = made.env | {"RAY_FAKE_CLUSTER": "1", "AUTOSCALER_UPDATE_INTERVAL_S": "1"}
    try:
        made.run("ip", "link", "add", LINK, "type", "bridge")
        made.set_address()
        file = tmp_path / "autoscaler.yaml"
        file.write_text(json.dumps(config()))
        program = str(Path(sys.executable).with_name("ray"))
        head = ["start", "--head", "--num-cpus=0", "--port=6379", f"--autoscaling-config={file}"]
        address = f"--node-ip-address={ADDRESSES[0]}"
        made.run(program, *head, address, "--include-dashboard=false", "--disable-usage-stats")
        yield made
    finally:
        made.power_off()


def tune(host: Host, folder: Path, **env: str) -> subprocess.CompletedProcess[str]:
    file = folder / "grows.yaml"
    file.write_text(SWEEP)
    command = [sys.executable, "-m", "tuning", "run", str(file), "--address", GCS]
    return subprocess.run(
        host.inside(*command, "--storage", str(folder / "sweeps")),
        env={**host.env, **env},
        capture_output=True,
        text=True,
        timeout=LONGEST_S,
    )


def test_the_cluster_grows_for_the_trials(host: Host, tmp_path: Path) -> None:
    alone = tune(host, tmp_path)
    assert alone.returncode == 2
    assert "0 of 1 workers fit" in alone.stderr
    grown = {"max_nodes": MACHINES, "cpus": 1, "gpus": 0}
    done = tune(host, tmp_path, TUNE_AUTOSCALING=json.dumps(grown))
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    paths = SweepPaths(tmp_path / "sweeps" / "grows")
    attempts = [trial.attempts for trial in read_trials(paths)]
    assert [len(each) for each in attempts] == [1, 1]
    first, second = (each[0] for each in attempts)
    assert first.ended is not None
    assert second.ended is not None
    assert first.started < second.ended
    assert second.started < first.ended, "both at once, each on a machine of its own"
