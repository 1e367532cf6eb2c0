"""Mistakes at `tune submit` and the commands beside it: no engine is asked."""

from __future__ import annotations

import fcntl
import importlib.util
import os
import re
import sys
import tempfile
from collections.abc import Iterator

import pytest

from tests.cli.conftest import DIGITS, ROOT, Tune
from tuning.cluster.identity import socket_path

FILE = ROOT / "search_spaces" / "llm.yaml"
NEEDS_NONE = importlib.util.find_spec("aiohttp_cors") is not None


@pytest.fixture(autouse=True)
def own_folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No cluster of this user is known."""
    monkeypatch.delenv("RAY_API_SERVER_ADDRESS", raising=False)
    with tempfile.TemporaryDirectory(prefix="t", dir="/tmp") as folder:  # pytest's is too long
        monkeypatch.setenv("RAY_TMPDIR", folder)
        yield


def test_engine_that_is_none_is_named(tune: Tune) -> None:
    said = tune.refused("submit", FILE, "--to", "rays")
    assert said == "--to rays: no such engine (did you mean 'ray'?)\n"
    assert "needs cluster.max_nodes" in tune.refused("submit", DIGITS, "--to", "slurm")


def test_engine_that_is_not_here_leaves_no_folder(
    tune: Tune, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    machine = ("--set", "cluster={max_nodes: 1, cpus: 4, memory: 4}")
    said = tune.refused("submit", DIGITS, "--to", "slurm", *machine)
    assert said.startswith("sbatch: no such program on this machine")
    assert not (tune.cwd / "sweeps" / "digits").exists()


def test_damaged_note_is_named(tune: Tune) -> None:
    tune.sweep("mine").job.write_text('{"engine": "slurm", "id": "1"}')
    assert "job.json: not readable" in tune("queue").err
    assert "job.json: not readable" in tune.refused("cancel", "mine")


def test_sweep_that_was_not_submitted_has_no_job(tune: Tune) -> None:
    tune.sweep("own")
    assert "was never submitted; end its session with: tune pause" in tune.refused("cancel", "own")
    assert "no sweep in" in tune("queue").out


def test_sweep_of_a_job_without_a_driver_is_interrupted_only_if_the_job_has_ended(
    tune: Tune, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tune.cwd), prepend=os.pathsep)
    machine = ("--set", "cluster={max_nodes: 1, cpus: 4, memory: 4}")
    for program, says in (("sbatch", "42"), ("squeue", "RUNNING None")):
        tune.write(program, f"#!/bin/sh\necho {says}\n").chmod(0o755)
    tune("submit", DIGITS, "--to", "slurm", *machine)
    assert re.search(r" running +digits +no driver yet ", tune("queue").out)
    tune.write("squeue", "#!/bin/sh\n")
    assert re.search(r" ended +digits +interrupted ", tune("queue").out)


def test_slurm_has_no_address(tune: Tune) -> None:
    said = tune.refused("submit", FILE, "--to", "slurm", "--address", "http://head:8265")
    assert "--address: has no effect on slurm" in said


def test_up_for_jobs_has_no_file(tune: Tune) -> None:
    assert "takes neither a file nor --idle" in tune.refused("up", "--jobs", FILE)
    assert "takes neither a file nor --idle" in tune.refused("up", "--jobs", "--idle", "1h")


@pytest.mark.skipif(sys.platform != "linux", reason="tune up needs Linux")
def test_up_beside_an_earlier_one_that_ends_says_so(
    tune: Tune, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tempfile.TemporaryDirectory(prefix="t", dir="/tmp") as base:  # sockets have short names
        monkeypatch.setenv("RAY_TMPDIR", base)
        with socket_path(create=True).with_name("lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            said = tune("up", code=1).err
    assert said == ("an earlier tune up ends with the command that it runs; try again after that\n")


@pytest.mark.skipif(NEEDS_NONE, reason="the extra is installed")
def test_missing_packages_are_named(tune: Tune) -> None:
    assert "pip install 'tune-platform[jobs]'" in tune.refused("up", "--jobs")


def test_rendered_files_are_listed_with_what_follows(tune: Tune) -> None:
    machine = ("--set", "cluster={max_nodes: 1, image: 'example.org/tune:1.0'}")
    said = tune("render", "k8s", FILE, "k8s", *machine)
    assert "k8s/base/rayjob.yaml\n" in said.out
    assert said.err == "then, with the secrets of k8s/README.md: kubectl apply -k k8s\n"
    mirror = ("--set", "checkpoint.mirror=s3://bucket/sweeps")
    said = tune("render", "sky", FILE, "sky", *machine, *mirror)
    assert said.out == "sky/llm-sky.yaml\nsky/llm.yaml\n"
    assert said.err == "then, as the head of sky/llm-sky.yaml says\n"
