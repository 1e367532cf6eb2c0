"""The file for SkyPilot, and what it cannot run."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from search_spaces.errors import UserError
from search_spaces.loading.sweep_file import load_sweep
from tests.cli.conftest import ROOT
from tuning.submit.sky import render_sky

GOLDEN = Path(__file__).with_name("golden")
FILE = ROOT / "search_spaces" / "llm.yaml"
MIRROR = "checkpoint.mirror=s3://bucket/sweeps"
SHAPES = {"sky": (1, 0, []), "sky_gpus": (1, 8, ["H100"])}


def rendered(nodes: int, gpus: int, options: list[str], *changes: str) -> dict[str, str]:
    cluster = f"cluster={{max_nodes: {nodes}, gpus: {gpus}, image: 'example.org/tune:1.0'}}"
    return render_sky(load_sweep(FILE, [cluster, *changes]), options)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_file_is_as_reviewed(shape: str, tmp_path: Path) -> None:
    """After a change that is meant: UPDATE_GOLDEN=1, and look at the difference."""
    made = rendered(*SHAPES[shape], MIRROR)
    assert set(made) == {"llm-sky.yaml", "llm.yaml"}
    file = GOLDEN / f"{shape}.yaml"
    if os.environ.get("UPDATE_GOLDEN"):
        file.write_text(made["llm-sky.yaml"])
    assert made["llm-sky.yaml"] == file.read_text()
    task: dict[str, Any] = YAML(typ="safe").load(made["llm-sky.yaml"])
    (tmp_path / "run.sh").write_text(task["run"])
    subprocess.run(["bash", "-n", tmp_path / "run.sh"], check=True)


def test_what_a_new_machine_lacks_is_named() -> None:
    with pytest.raises(UserError, match=r"llm.yaml: needs checkpoint\.mirror"):
        rendered(1, 0, [])
    with pytest.raises(UserError, match="SkyPilot's machines share no folder"):
        rendered(4, 0, [], MIRROR)
    with pytest.raises(UserError, match="--with: needs the kind of 8 GPUs"):
        rendered(1, 8, [], MIRROR)
    with pytest.raises(UserError, match="--with: has no effect: machines have no GPU"):
        rendered(1, 0, ["H100"], MIRROR)
