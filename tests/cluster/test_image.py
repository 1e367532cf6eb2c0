"""The steps of the Dockerfile that build its environment, in a folder: CI has no builder."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.cli.conftest import ROOT

pytestmark = pytest.mark.timeout(1800)


def steps(text: str) -> list[list[str]]:
    """Instructions of the first stage, each as its words."""
    stage = text.split("\nFROM")[1]
    return [
        line.split(maxsplit=1) for line in re.findall(r"^(?:RUN|COPY) .*$", stage, re.MULTILINE)
    ]


def test_the_image_has_a_program_that_runs(tmp_path: Path) -> None:
    index = os.environ.get("TORCH_INDEX", "https://pypi.org/simple")
    source, venv = tmp_path / "src", tmp_path / "venv"
    source.mkdir()
    for kind, rest in steps((ROOT / "Dockerfile").read_text(encoding="utf-8")):
        if kind == "COPY":
            *names, _ = rest.split()
            subprocess.run(["cp", "-r", *names, source], check=True, cwd=ROOT)
            continue
        command = rest.replace("/venv", str(venv))
        env = {**os.environ, "TORCH_INDEX": index, "PYTHONPATH": ""}
        subprocess.run(["sh", "-c", command], check=True, cwd=source, env=env)
    cluster = "cluster={max_nodes: 2, image: 'example.org/tune:1.0'}"
    command = [venv / "bin" / "tune", "render", "k8s", ROOT / "search_spaces" / "llm.yaml"]
    subprocess.run([*command, tmp_path / "k8s", "--set", cluster], check=True, cwd=tmp_path)
    assert (tmp_path / "k8s" / "overlays" / "tls" / "kustomization.yaml").is_file()
    checked = "import ray.dashboard.modules.job.sdk, mlflow, psycopg2, prometheus_client"
    subprocess.run([venv / "bin" / "python", "-c", checked], check=True, cwd=tmp_path)
